// Sends and reads records with franz-go, for benchmarks/adapters/foreign.py; benchmarks/programs/README.md
// describes the lines on standard input and output.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const module = "github.com/twmb/franz-go"

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	fmt.Printf("franz-go %s, %s\n", version(), runtime.Version())
	var client, consumer *kgo.Client
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		var response string
		var err error
		switch words[0] {
		case "start":
			client, err = start(words[1:])
			response = "started"
		case "send":
			response, err = send(client, words[1:])
		case "stop":
			client.Close()
			response = "stopped"
		case "open":
			consumer, err = open(words[1])
			response = "opened"
		case "read":
			response, err = read(consumer, words[1:])
		case "close":
			consumer.Close()
			response = "closed"
		default:
			err = fmt.Errorf("unknown request %q", words[0])
		}
		if err != nil {
			response = "failed\t" + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(response)
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "of an unknown version"
}

func start(settings []string) (*kgo.Client, error) {
	seeds := kgo.SeedBrokers(strings.Split(settings[0], ",")...)
	if len(settings) == 1 { // with the client's own defaults
		return kgo.NewClient(seeds)
	}
	acks, codec := settings[1], codecs[settings[4]]
	lingerMs, err := strconv.ParseFloat(settings[2], 64)
	if err != nil {
		return nil, err
	}
	batchSize, err := strconv.Atoi(settings[3])
	if err != nil {
		return nil, err
	}
	bufferMemory, err := strconv.Atoi(settings[5])
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		seeds,
		kgo.ProducerLinger(time.Duration(lingerMs * float64(time.Millisecond))),
		kgo.ProducerBatchMaxBytes(int32(batchSize)),
		kgo.ProducerBatchCompression(codec),
		kgo.MaxBufferedBytes(bufferMemory),
		kgo.MaxBufferedRecords(10_000_000), // the limit is in bytes, as for the others
	}
	// An idempotent client has five requests in flight.
	if acks != "all" {
		options = append(
			options,
			kgo.RequiredAcks(kgo.LeaderAck()),
			kgo.DisableIdempotentWrite(),
			kgo.MaxProduceRequestsInflightPerBroker(5),
		)
	}
	return kgo.NewClient(options...)
}

func send(client *kgo.Client, arguments []string) (string, error) {
	topic := arguments[0]
	records, err := strconv.Atoi(arguments[1])
	if err != nil {
		return "", err
	}
	values, err := lines(arguments[2])
	if err != nil {
		return "", err
	}
	keys, err := lines(arguments[3])
	if err != nil {
		return "", err
	}
	headerCount, err := strconv.Atoi(arguments[4])
	if err != nil {
		return "", err
	}
	var headers []kgo.RecordHeader
	for number := range headerCount {
		headers = append(headers, kgo.RecordHeader{
			Key:   fmt.Sprintf("header-%d", number),
			Value: []byte(fmt.Sprintf("value of %d", number)),
		})
	}
	var delivered atomic.Int64
	var failure atomic.Value
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			failure.Store(err)
		} else {
			delivered.Add(1)
		}
	}
	ctx := context.Background()
	runtime.GC() // so that earlier garbage is not measured
	wall, cpu := time.Now(), cpuTime()
	key, value := 0, 0
	for range records {
		record := &kgo.Record{Topic: topic, Value: values[value], Headers: headers}
		if value++; value == len(values) {
			value = 0
		}
		if len(keys) > 0 {
			record.Key = keys[key]
			if key++; key == len(keys) {
				key = 0
			}
		}
		client.Produce(ctx, record, promise)
	}
	if err := client.Flush(ctx); err != nil {
		return "", err
	}
	usedCPU, elapsed := cpuTime()-cpu, time.Since(wall)
	if delivered.Load() != int64(records) {
		return "", fmt.Errorf("%d of %d records were delivered; last error: %v", delivered.Load(), records, failure.Load())
	}
	return fmt.Sprintf("sent\t%d\t%f\t%f", records, usedCPU.Seconds(), elapsed.Seconds()), nil
}

var filesRead = map[string][][]byte{}

// lines returns the lines of a file, read once; none if there is no path.
func lines(path string) ([][]byte, error) {
	if path == "" {
		return nil, nil
	}
	if found, ok := filesRead[path]; ok {
		return found, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	filesRead[path] = bytes.Split(content, []byte("\n"))
	return filesRead[path], nil
}

// cpuTime returns the CPU time of all threads of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
