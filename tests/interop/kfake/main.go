// The command kfake runs franz-go's fake Kafka cluster of three nodes for tests in other languages.
//
// It prints one line with the addresses, {"addresses": ["127.0.0.1:1", ...]}. Then it reads commands
// from standard input, one JSON object per line, and responds to each with a line: {} or
// {"error": "message"}. It ends at the end of its input, and so with the test that started it.
//
// The commands, by "do":
//
//	topic         topic, partitions
//	fail          key, code, times           respond to the next requests of an API with an error
//	close, hang   key, times                 close the connection of the next requests, or never respond; neither handles them
//	leader        topic, partition, node     make this node the leader
//	coordinators                             move the coordinators of all groups and transactional ids
//	stop, start   node                       close the node's port and connections, or open the same port again
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

type command struct {
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
	cluster     *kfake.Cluster
	addresses   []string // by node
	connections *connections
}

// connections keeps open connections by listening address, as a node that kfake removes would
// continue to serve its own.
type connections struct {
	mutex sync.Mutex
	open  map[string][]net.Conn
}

type listener struct {
	net.Listener
	of *connections
}

func (d *connections) listen(network, address string) (net.Listener, error) {
	inner, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return &listener{inner, d}, nil
}

func (d *listener) Accept() (net.Conn, error) {
	connection, err := d.Listener.Accept()
	if err == nil {
		d.of.mutex.Lock()
		defer d.of.mutex.Unlock()
		address := d.Addr().String()
		d.of.open[address] = append(d.of.open[address], connection)
	}
	return connection, err
}

func (d *connections) closeAll(address string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, connection := range d.open[address] {
		connection.Close()
	}
	delete(d.open, address)
}

var errClosed = errors.New("closed on command")

func (s *server) execute(c command) error {
	switch c.Do {
	case "topic":
		return s.cluster.CreateTopic(c.Topic, c.Partitions, nil)
	case "fail":
		s.fail(c)
		return nil
	case "close":
		s.refuse(c, errClosed)
		return nil
	case "hang":
		s.refuse(c, nil)
		return nil
	case "leader":
		return s.cluster.MoveTopicPartition(c.Topic, c.Partition, c.Node)
	case "coordinators":
		s.cluster.RehashCoordinators()
		return nil
	case "stop":
		defer s.connections.closeAll(s.addresses[c.Node])
		return s.cluster.RemoveNode(c.Node)
	case "start":
		return s.start(c.Node)
	}
	return fmt.Errorf("unknown command %q", c.Do)
}

func (s *server) fail(c command) {
	s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Key(c.Key)}, Err: kerr.TypedErrorForCode(c.Code), Count: c.Times})
}

func (s *server) refuse(c command, err error) {
	remaining := c.Times
	s.cluster.ControlKey(c.Key, func(kmsg.Request) (kmsg.Response, error, bool) {
		if remaining--; remaining > 0 {
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
	open := &connections{open: map[string][]net.Conn{}}
	options := []kfake.Opt{kfake.NumBrokers(nodes), kfake.ListenFn(open.listen)}
	if version != "" {
		versions := kversion.FromString(version)
		if versions == nil {
			return fmt.Errorf("unknown Kafka version %q", version)
		}
		options = append(options, kfake.MaxVersions(versions))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	s := &server{cluster, cluster.ListenAddrs(), open}
	responses := json.NewEncoder(os.Stdout)
	if err := responses.Encode(map[string][]string{"addresses": s.addresses}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var c command
		response := map[string]string{}
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			err = s.execute(c)
		}
		if err != nil {
			response["error"] = err.Error()
		}
		if err := responses.Encode(response); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	version := flag.String("as-version", "", "the version of Kafka, such as 2.8; default: the newest")
	flag.Parse()
	if err := run(*version); err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}
