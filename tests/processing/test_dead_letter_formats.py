"""The headers of each kind of dead letter, as the programs that write them write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import ConsumerRecord
from aioprod.processing.dead_letters import DeadLetter
from aioprod.processing.dead_letters.formats import FORMATS
from aioprod.types import Header

LISTENER = "org.springframework.kafka.listener.ListenerExecutionFailedException"
OWN: Header = ("trace", b"\x01\x02")

# Written by DeadLetterPublishingRecoverer of spring-kafka 3.3.4, for offset 5,000,000,000.
SPRING = [
    ("kafka_dlt-exception-fqcn", LISTENER.encode()),
    ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"Listener failed; no stock"),
    ("kafka_dlt-exception-stacktrace", b"..."),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", bytes.fromhex("00000003")),
    ("kafka_dlt-original-offset", bytes.fromhex("000000012a05f200")),
    ("kafka_dlt-original-timestamp", bytes.fromhex("0000018bcfe5687b")),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
]  # fmt: skip
# The same record after another tool sent it again with its headers, and it failed once more.
SPRING_TWICE = [
    *SPRING[4:],
    *SPRING[:2],
    ("kafka_dlt-exception-message", b"Listener failed; again"),
    ("kafka_dlt-exception-stacktrace", b"..."),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", bytes.fromhex("00000001")),
    ("kafka_dlt-original-offset", bytes.fromhex("0000000000000007")),
    ("kafka_dlt-original-timestamp", bytes.fromhex("0000018bcfe58f0f")),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"repair"),
]
# The names of @RetryableTopic, by the constants of spring-kafka 3.3.4.
SPRING_RETRY = [
    (name.replace("_dlt-", "_") if "consumer-group" not in name else name, value)
    for name, value in SPRING
] + [("retry_topic-attempts", bytes.fromhex("00000004")), ("kafka_original-topic", b"orders")]
# Written by DeadLetterQueueReporter of connect-runtime 3.9.1.
CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"5000000000"),
    ("__connect.errors.connector.name", b"sink"),
    ("__connect.errors.task.id", b"2"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"java.lang.String"),
    ("__connect.errors.exception.class.name", b"java.lang.IllegalStateException"),
    ("__connect.errors.exception.message", b"no stock"),
    ("__connect.errors.exception.stacktrace", b"..."),
]
# Written by ExceptionHandlerUtils of kafka-streams 4.2.0 (KIP-1034).
STREAMS = [
    ("__streams.errors.exception", b"java.lang.IllegalStateException"),
    ("__streams.errors.message", None),
    ("__streams.errors.stacktrace", b"..."),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"3"),
    ("__streams.errors.offset", b"5000000000"),
]
SPARK = [
    ("dead-letter.reason", b"no stock"),
    ("dead-letter.topic", b"orders"),
    ("dead-letter.partition", b"3"),
    ("dead-letter.offset", b"5000000000"),
    ("dead-letter.timestamp", b"1700000000123"),
]
AIOPROD = [
    ("aioprod.original-topic", b"orders"),
    ("aioprod.original-partition", b"3"),
    ("aioprod.original-offset", b"5000000000"),
    ("aioprod.original-timestamp", b"1700000000123"),
    ("aioprod.group-id", b"billing"),
    ("aioprod.attempts", b"4"),
    ("aioprod.error-class", b"shop.NoStock"),
    ("aioprod.error-message", b"no stock"),
]
ISE = "java.lang.IllegalStateException"


def letter_of(headers: list[Any], key: bytes | None = b"k") -> DeadLetter:
    record: ConsumerRecord[bytes | None, bytes | None] = ConsumerRecord(
        "dead", 0, 7, 1_700_000_001_000, 0, key, b"v", tuple(headers)
    )
    return DeadLetter.of(record)


@pytest.mark.parametrize(
    ("headers", "name", "timestamp", "group", "error", "message", "attempts"),
    [
        (SPRING, "spring", 1_700_000_000_123, "billing", ISE, "Listener failed; no stock", None),
        (SPRING_TWICE, "spring", 1_700_000_000_123, "billing", ISE, "Listener failed; again", None),
        (
            SPRING_RETRY,
            "spring-retry",
            *(1_700_000_000_123, "billing", ISE, "Listener failed; no stock", 4),
        ),
        (CONNECT, "connect", None, "sink", ISE, "no stock", None),
        (STREAMS, "streams", None, "", ISE, "", None),
        (SPARK, "aioprod-spark", 1_700_000_000_123, "", "", "no stock", None),
        (AIOPROD, "aioprod", 1_700_000_000_123, "billing", "shop.NoStock", "no stock", 4),
    ],
)
def test_the_headers_of_each_program(
    headers: list[Header],
    name: str,
    timestamp: int | None,
    group: str,
    error: str,
    message: str,
    attempts: int | None,
) -> None:
    found = letter_of([OWN, *headers])
    assert found.format == name
    assert (found.original_topic, found.original_partition) == ("orders", 3)
    assert (found.original_offset, found.original_timestamp) == (5_000_000_000, timestamp)
    assert (found.group_id, found.error, found.message) == (group, error, message)
    assert found.attempts == attempts
    assert found.headers == (OWN,)
    assert found.to_send("orders", 3).headers == (OWN, ("aioprod.redrives", b"1"))


def test_of_several_programs_the_last_one_counts() -> None:
    forged = [("kafka_dlt-original-topic", b"payments")]
    assert letter_of([*forged, *AIOPROD]).original_topic == "orders"
    assert letter_of([*AIOPROD, *CONNECT]).format == "connect"
    assert letter_of([*AIOPROD, *CONNECT, OWN]).headers == (OWN,)


@pytest.mark.parametrize("topic", [b"__consumer_offsets", b"", b"a b", b"\xff", b"..", b"x" * 250])
def test_a_topic_that_no_record_may_be_sent_to_counts_as_unknown(topic: bytes) -> None:
    assert letter_of([("aioprod.original-topic", topic)]).original_topic is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [name for each in FORMATS for names in each.names.values() for name in names]
            )
            | st.text(max_size=5).filter(lambda text: text.isprintable()),
            st.none() | st.binary(max_size=9) | st.just(b"orders"),
        ),
        max_size=12,
    )
)
def test_any_headers_are_read(headers: list[Header]) -> None:
    found = letter_of(headers)
    numbers = (found.original_partition, found.original_offset, found.attempts)
    assert all(number is None or 0 <= number < 1 << 63 for number in numbers)
    sent = found.to_send("orders", None)
    assert letter_of(list(sent.headers)).redrives == found.redrives + 1
    assert letter_of(list(sent.headers)).format == ""
