// The command kfake runs franz-go's fake Kafka cluster of three nodes for tests in other languages.
//
// It prints one line with the addresses, {"addresses": ["127.0.0.1:1", ...]}. Then it reads orders from standard input, a JSON object a line, and
// answers each with a line: {} or {"error": "why not"}. It ends when standard input does, so it never outlives the test that started it.
//
// The orders, by "do":
//
//	topic         topic, partitions
//	fail          key, code, times           answer the next requests of an API with an error
//	close, hang   key, times                 close the connection of the next requests, or never answer them; neither handles them
//	leader        topic, partition, node     this node leads
//	coordinators                             all groups and transactional ids move
//	stop, start   node                       the node's port and connections are closed, or the port is opened again on the same port
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const nodes = 3

type order struct {
	Do         string `json:"do"`
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	Partition  int32  `json:"partition"`
	Node       int32  `json:"node"`
	Key        int16  `json:"key"`
	Code       int16  `json:"code"`
	Times      int    `json:"times"`
}

type server struct {
	cluster   *kfake.Cluster
	addresses []string // by node, as they were at the start
	doors     *doors
}

// doors keeps the connections that came in, by the address that took them: a node that kfake removes would go on answering on its own.
type doors struct {
	mutex sync.Mutex
	open  map[string][]net.Conn
}

type door struct {
	net.Listener
	of *doors
}

func (d *doors) listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return &door{listener, d}, nil
}

func (d *door) Accept() (net.Conn, error) {
	connection, err := d.Listener.Accept()
	if err == nil {
		d.of.mutex.Lock()
		defer d.of.mutex.Unlock()
		address := d.Addr().String()
		d.of.open[address] = append(d.of.open[address], connection)
	}
	return connection, err
}

func (d *doors) hangUp(address string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, connection := range d.open[address] {
		connection.Close()
	}
	delete(d.open, address)
}

var errClosed = errors.New("closed by order")

func (s *server) carryOut(o order) error {
	switch o.Do {
	case "topic":
		return s.cluster.CreateTopic(o.Topic, o.Partitions, nil)
	case "fail":
		s.fail(o)
		return nil
	case "close":
		s.refuse(o, errClosed)
		return nil
	case "hang":
		s.refuse(o, nil)
		return nil
	case "leader":
		return s.cluster.MoveTopicPartition(o.Topic, o.Partition, o.Node)
	case "coordinators":
		s.cluster.RehashCoordinators()
		return nil
	case "stop":
		defer s.doors.hangUp(s.addresses[o.Node])
		return s.cluster.RemoveNode(o.Node)
	case "start":
		return s.start(o.Node)
	}
	return fmt.Errorf("there is no order %q", o.Do)
}

func (s *server) fail(o order) {
	s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Key(o.Key)}, Err: kerr.TypedErrorForCode(o.Code), Count: o.Times})
}

func (s *server) refuse(o order, err error) {
	left := o.Times
	s.cluster.ControlKey(o.Key, func(kmsg.Request) (kmsg.Response, error, bool) {
		if left--; left > 0 {
			s.cluster.KeepControl()
		} else {
			s.cluster.DropControl()
		}
		return nil, err, true
	})
}

func (s *server) start(node int32) error {
	_, text, err := net.SplitHostPort(s.addresses[node])
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	_, _, err = s.cluster.AddNode(node, port)
	return err
}

func run(version string) error {
	doors := &doors{open: map[string][]net.Conn{}}
	options := []kfake.Opt{kfake.NumBrokers(nodes), kfake.ListenFn(doors.listen)}
	if version != "" {
		versions := kversion.FromString(version)
		if versions == nil {
			return fmt.Errorf("there is no Kafka version %q", version)
		}
		options = append(options, kfake.MaxVersions(versions))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	s := &server{cluster, cluster.ListenAddrs(), doors}
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(map[string][]string{"addresses": s.addresses}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		answer := map[string]string{}
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			err = s.carryOut(o)
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	version := flag.String("as-version", "", "the version of Kafka to be, such as 2.8; the newest where it is not given")
	flag.Parse()
	if err := run(*version); err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}
