"""Keys go where Java sends them; keyless records fill batches and spread over the partitions, and
none is left out.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.producer.partitioner import (
    Partitioner,
    Partitions,
    RoundRobinPartitioner,
    StickyPartition,
    new_batch_hook,
    partition_for_key,
)

# Hashes from Java's org.apache.kafka.common.utils.Utils.murmur2, Kafka 4.1.0.
JAVAS_HASHES = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"abcd": -1323649548,
    b"abcde": 461995741,
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "Zürich".encode(): -1551140815,
    b"flight-0001": 900970867,
    bytes(range(256)): -1948347274,
    b"\xff\xfe\x80": -160726397,
}


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 by the book: 32-bit MurmurHash2 with Kafka's seed."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        hashed = (hashed * multiplier & mask) ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", JAVAS_HASHES)
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_a_key_goes_where_java_sends_it(key: bytes, count: int) -> None:
    assert partition_for_key(key, count) == (JAVAS_HASHES[key] & 0x7FFFFFFF) % count


def test_the_reference_agrees_with_java() -> None:
    assert {key: murmur2(key) for key in JAVAS_HASHES} == {
        key: hashed & 0xFFFFFFFF for key, hashed in JAVAS_HASHES.items()
    }


@settings(max_examples=500)
@given(key=st.binary(max_size=200), count=st.integers(1, 10_000))
def test_every_key_goes_where_the_reference_says(key: bytes, count: int) -> None:
    assert partition_for_key(key, count) == (murmur2(key) & 0x7FFFFFFF) % count


# -- round robin and custom ones -------------------------------------------------------------------


def test_partitions_is_a_number_that_knows_what_is_available() -> None:
    partitions = Partitions(4, [0, 2])
    assert partitions == 4 and 7 % partitions == 3 and list(range(partitions)) == [0, 1, 2, 3]
    assert partitions.count == 4 and type(partitions.count) is int
    assert partitions.available == [0, 2]


class Producing:
    """Calls a partitioner as a producer does: for each record, and again for a new batch if the
    partitioner requests that.
    """

    def __init__(
        self, partitioner: Partitioner, partitions: Partitions, records_per_batch: int
    ) -> None:
        self.partitioner = partitioner
        self.partitions = partitions
        self.records_per_batch = records_per_batch
        self.counts: Counter[int] = Counter()
        self.asked = 0

    def send(self) -> None:
        partition = self._ask()
        hook = new_batch_hook(self.partitioner)
        if hook is not None and self.counts[partition] % self.records_per_batch == 0:
            hook("flights", partition)
            partition = self._ask()
        self.counts[partition] += 1

    def _ask(self) -> int:
        self.asked += 1
        return self.partitioner.partition("flights", None, b"v", self.partitions)


@pytest.mark.parametrize("records_per_batch", [1, 2, 3])
def test_round_robin_over_tiny_batches_is_even(records_per_batch: int) -> None:
    # KAFKA-9965: asked twice for each new batch, it left half of the partitions empty.
    producing = Producing(RoundRobinPartitioner(), Partitions(4, [0, 1, 2, 3]), records_per_batch)
    for _ in range(400):
        producing.send()
    assert producing.counts == {0: 100, 1: 100, 2: 100, 3: 100}
    assert producing.asked == 400


def test_a_sticky_one_is_informed_of_new_batches() -> None:
    class Switching:
        current = 0

        def partition(
            self, topic: str, key: bytes | None, value: bytes | None, partitions: int
        ) -> int:
            return self.current % partitions

        def on_new_batch(self, topic: str, partition: int) -> None:
            self.current += 1

    assert new_batch_hook(RoundRobinPartitioner()) is None
    producing = Producing(Switching(), Partitions(4, [0, 1, 2, 3]), 1)
    for _ in range(8):
        producing.send()
    assert set(producing.counts.values()) == {2}


def test_round_robin_ignores_keys_and_counts_each_topic_by_itself() -> None:
    partitioner = RoundRobinPartitioner()
    partitions = Partitions(3, [0, 1, 2])
    assert [partitioner.partition("a", b"same key", b"v", partitions) for _ in range(4)] == [
        0,
        1,
        2,
        0,
    ]
    assert [partitioner.partition("b", None, None, partitions) for _ in range(2)] == [0, 1]


def test_round_robin_keeps_to_available_partitions_unless_there_is_none() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("a", None, None, Partitions(4, [1, 3])) for _ in range(4)] == [
        1,
        3,
        1,
        3,
    ]
    assert {partitioner.partition("a", None, None, Partitions(4, [])) for _ in range(4)} == {
        0,
        1,
        2,
        3,
    }


# -- sticky (KIP-794) ------------------------------------------------------------------------------


def sticky(seed: int = 1, *, batch_size: int = 100, adaptive: bool = True) -> StickyPartition:
    return StickyPartition(batch_size, random.Random(seed), adaptive)


def shares(
    choice: StickyPartition,
    available: list[int],
    queue_length: Callable[[int], int] | None,
    longest: int,
    draws: int,
) -> dict[int, float]:
    counts = Counter(choice.switch(available, queue_length, longest) for _ in range(draws))
    return {partition: counts[partition] / draws for partition in available}


def test_it_stays_until_a_batch_of_bytes_was_used() -> None:
    choice = sticky(batch_size=100)
    first = choice.switch([0, 1, 2])
    assert not choice.used(60)
    assert choice.used(40)
    assert choice.switch([0, 1, 2]) != first
    assert not choice.used(99), "bytes are counted for each partition from 0"


@given(
    seed=st.integers(0, 2**32),
    available=st.lists(st.integers(0, 50), min_size=1, max_size=20, unique=True).map(sorted),
    lengths=st.lists(st.integers(0, 9), min_size=51, max_size=51),
    adaptive=st.booleans(),
)
def test_only_available_partitions_are_chosen(
    seed: int, available: list[int], lengths: list[int], adaptive: bool
) -> None:
    choice = sticky(seed, adaptive=adaptive)
    for _ in range(20):
        before = choice.current
        assert choice.switch(available) in available
        assert choice.current != before or len(available) == 1
        assert (
            choice.switch(available, lengths.__getitem__, max(lengths[p] for p in available))
            in available
        )
        assert choice.current in available


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length", [0, 7])
def test_equal_queues_mean_equal_shares(seed: int, length: int) -> None:
    available = [0, 1, 2, 5, 8]
    got = shares(sticky(seed), available, lambda partition: length, length, 20_000)
    assert all(abs(share - 0.2) < 0.02 for share in got.values()), got


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "lengths",
    [
        [0, 3, 1],  # Java's own example
        [5, 0],
        [9, 9, 9, 0],  # mostly rejected draws: the sum decides
        [20, 20, 20, 20, 20, 19],
        [0, 0, 0, 50],
    ],
)
def test_shares_follow_the_weights(seed: int, lengths: list[int]) -> None:
    available = [partition + 3 for partition in range(len(lengths))]
    longest = max(lengths)
    weights = {partition: longest + 1 - lengths[partition - 3] for partition in available}
    got = shares(sticky(seed), available, lambda partition: lengths[partition - 3], longest, 20_000)
    for partition, weight in weights.items():
        assert abs(got[partition] - weight / sum(weights.values())) < 0.02, (partition, got)


def test_a_longest_that_is_out_of_date_starves_no_partition() -> None:
    lengths = [0, 40]
    got = shares(sticky(), [0, 1], lengths.__getitem__, 3, 20_000)
    assert abs(got[1] - 1 / 5) < 0.02, "weight 1 of 4 + 1"


def test_without_adaption_queues_don_t_matter() -> None:
    lengths = [0, 0, 50]
    got = shares(sticky(adaptive=False), [0, 1, 2], lengths.__getitem__, 50, 20_000)
    assert all(abs(share - 1 / 3) < 0.02 for share in got.values()), got


@pytest.mark.parametrize("seed", range(5))
def test_no_partition_starves_while_a_slow_one_gets_less(seed: int) -> None:
    """Partition 0's broker sends a batch every 8th round, the others every 2nd: all get some, 0
    gets least, and its queue stays short.
    """
    rng = random.Random(seed)
    choice = StickyPartition(100, rng)
    available = list(range(4))
    queues = dict.fromkeys(available, 0)
    counts: Counter[int] = Counter()
    since = dict.fromkeys(available, 0)
    longest_wait = 0
    for turn in range(8000):
        partition = choice.switch(available, queues.__getitem__, max(queues.values()))
        queues[partition] += 1
        counts[partition] += 1
        for other in available:
            since[other] = 0 if other == partition else since[other] + 1
        longest_wait = max(longest_wait, *since.values())
        for slow in available:
            if queues[slow] and turn % (8 if slow == 0 else 2) == 0:
                queues[slow] -= 1
    assert longest_wait < 300, f"a partition got nothing for {longest_wait} batches"
    fast = statistics.mean(counts[partition] for partition in (1, 2, 3))
    assert 0.2 * fast < counts[0] < 0.75 * fast, counts
    assert queues[0] < 60, "its share is what its broker can take"


@pytest.mark.parametrize(("lengths", "most"), [([0, 1], 4), ([3, 3, 3, 0], 8)])
def test_thousands_of_partitions_cost_what_a_few_do(lengths: list[int], most: int) -> None:
    looked_at = 0

    def queue_length(partition: int) -> int:
        nonlocal looked_at
        looked_at += 1
        return lengths[partition % len(lengths)]

    choice, available = sticky(), list(range(20_000))
    for _ in range(1000):
        choice.switch(available, queue_length, max(lengths))
    assert looked_at < 1000 * most, "the choice must not look at each partition"
