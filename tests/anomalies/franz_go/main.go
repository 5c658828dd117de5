// Drives franz-go for tests/anomalies/clients/franz_go_client.py. A line on standard input is a call
// as JSON, which runs in its own goroutine; a line on standard output is its result, or the
// partitions that a member was assigned.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type call struct {
	ID              int    `json:"id"`
	Client          int    `json:"client"`
	Name            string `json:"name"`
	Servers         string `json:"servers"`
	Topic           string `json:"topic"`
	TransactionalID string `json:"transactional_id"`
	Group           string `json:"group"`
	LimitMs         int    `json:"limit_ms"`
	TransactionMs   int    `json:"transaction_ms"`
	Partition       int32  `json:"partition"`
	Value           string `json:"value"`
	Commit          bool   `json:"commit"`
}

type result struct {
	ID         int                `json:"id,omitempty"`
	Error      string             `json:"error,omitempty"`
	Offset     int64              `json:"offset"`
	Records    [][3]int64         `json:"records,omitempty"`
	Offsets    map[int32]int64    `json:"offsets,omitempty"`
	Client     int                `json:"client,omitempty"`
	Generation int32              `json:"generation,omitempty"`
	Assigned   map[string][]int32 `json:"assigned,omitempty"`
}

var (
	output  sync.Mutex
	clients sync.Map // of *kgo.Client by the number of the client
)

func say(line result) {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		os.Exit(1)
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var next call
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			panic(err)
		}
		go func() {
			found := result{}
			if err := do(next, &found); err != nil {
				found.Error = err.Error()
			}
			found.ID = next.ID
			say(found)
		}()
	}
}

func do(next call, found *result) error {
	limit := time.Duration(next.LimitMs) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if next.Name == "sender" || next.Name == "member" {
		return start(ctx, next, limit)
	}
	known, ok := clients.Load(next.Client)
	if !ok {
		return errors.New("the client is not started")
	}
	client := known.(*kgo.Client)
	switch next.Name {
	case "send":
		record := &kgo.Record{Partition: next.Partition, Value: []byte(next.Value)}
		sent, err := client.ProduceSync(ctx, record).First()
		found.Offset = sent.Offset
		return err
	case "begin":
		return client.BeginTransaction()
	case "end":
		return client.EndTransaction(ctx, kgo.TransactionEndTry(next.Commit))
	case "poll":
		return poll(ctx, client, found)
	case "commit":
		return commit(ctx, client, next.Topic, found)
	case "close":
		clients.Delete(next.Client)
		client.CloseAllowingRebalance()
		return nil
	}
	return errors.New("unknown call " + next.Name)
}

func start(ctx context.Context, next call, limit time.Duration) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(next.Servers, ",")...),
		kgo.RequestTimeoutOverhead(10 * time.Second),
		kgo.RetryTimeout(limit),
	}
	if next.Name == "sender" {
		options = append(options,
			kgo.DefaultProduceTopic(next.Topic),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.RecordDeliveryTimeout(limit),
			kgo.ProduceRequestTimeout(10*time.Second),
		)
		if next.TransactionalID != "" {
			options = append(options, kgo.TransactionalID(next.TransactionalID))
		}
		if timeout := time.Duration(next.TransactionMs) * time.Millisecond; timeout != 0 {
			options = append(options, kgo.TransactionTimeout(timeout))
		}
	} else {
		options = append(options,
			kgo.ConsumerGroup(next.Group),
			kgo.ConsumeTopics(next.Topic),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(),
			kgo.BlockRebalanceOnPoll(),
			kgo.OnPartitionsAssigned(
				func(_ context.Context, client *kgo.Client, assigned map[string][]int32) {
					_, generation := client.GroupMetadata()
					say(result{Client: next.Client, Generation: generation, Assigned: assigned})
				},
			),
		)
	}
	client, err := kgo.NewClient(options...)
	clients.Store(next.Client, client)
	if err == nil && next.TransactionalID != "" { // fences older producers now, not before the first record
		_, _, err = client.ProducerID(ctx)
	}
	return err
}

func poll(ctx context.Context, client *kgo.Client, found *result) error {
	client.AllowRebalance() // the last poll has blocked them
	fetched := client.PollRecords(ctx, 20)
	for _, record := range fetched.Records() {
		value, err := strconv.ParseInt(string(record.Value), 10, 64)
		if err != nil {
			return err
		}
		found.Records = append(found.Records, [3]int64{int64(record.Partition), record.Offset, value})
	}
	if len(found.Records) > 0 || errors.Is(fetched.Err0(), context.DeadlineExceeded) {
		return nil
	}
	return fetched.Err0()
}

func commit(ctx context.Context, client *kgo.Client, topic string, found *result) error {
	var failed error
	polled := client.UncommittedOffsets()
	client.CommitOffsetsSync(ctx, polled, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error,
	) {
		failed = firstError(response, err)
	})
	found.Offsets = map[int32]int64{}
	for partition, position := range polled[topic] {
		found.Offsets[partition] = position.Offset
	}
	return failed
}

func firstError(response *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		return err
	}
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}
