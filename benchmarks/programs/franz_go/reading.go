package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const limit = 300 * time.Second

// open returns a connected consumer with default settings.
func open(servers string) (*kgo.Client, error) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(servers, ",")...))
	if err != nil {
		return nil, err
	}
	return consumer, consumer.Ping(context.Background())
}

// read reads records of a topic from the beginning, without a group.
func read(consumer *kgo.Client, arguments []string) (string, error) {
	topic := arguments[0]
	partitions, err := strconv.Atoi(arguments[1])
	if err != nil {
		return "", err
	}
	records, err := strconv.Atoi(arguments[2])
	if err != nil {
		return "", err
	}
	assigned := map[int32]kgo.Offset{}
	var numbers []int32
	for number := range int32(partitions) {
		assigned[number] = kgo.NewOffset().AtStart()
		numbers = append(numbers, number)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	runtime.GC() // so that earlier garbage is not measured
	wall, cpu := time.Now(), cpuTime()
	consumer.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned})
	found, size := 0, 0
	for found < records {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return "", err
		}
		fetches.EachRecord(func(record *kgo.Record) { size += len(record.Value) })
		found += fetches.NumRecords()
	}
	usedCPU, elapsed := cpuTime()-cpu, time.Since(wall)
	consumer.RemoveConsumePartitions(map[string][]int32{topic: numbers})
	return fmt.Sprintf("read\t%d\t%d\t%f\t%f", found, size, usedCPU.Seconds(), elapsed.Seconds()), nil
}
