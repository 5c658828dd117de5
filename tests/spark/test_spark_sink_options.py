"""The options of writes that are about delivery: what they are by default, and what does not go
together.
"""

from __future__ import annotations

import pytest

from aioprod import ConfigError
from aioprod.spark.sink_options import parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_exactly_once_is_the_default_and_has_time() -> None:
    options = parse_sink_options(SERVERS)
    assert (options.delivery, options.transactional_id_prefix, options.decision_topic) == (
        "exactly-once",
        "aioprod-spark",
        "__aioprod_decisions",
    )
    assert (
        options.txn_app_id,
        options.txn_version,
        options.on_replay_mismatch,
        options.skip_lost_batch,
    ) == (None, None, "fail", None)
    assert options.producer["transaction_timeout_ms"] == 900_000


def test_every_option_is_taken() -> None:
    given = {
        "delivery": "Exactly-Once",
        "transactionalIdPrefix": "p",
        "txnAppId": "app",
        "txnVersion": "0",
        "decisionTopic": "d",
        "onReplayMismatch": "warn",
        "skipLostBatch": "17",
        "kafka.transaction.timeout.ms": "5000",
    }
    options = parse_sink_options(SERVERS | given)
    assert (
        options.transactional_id_prefix,
        options.txn_app_id,
        options.txn_version,
        options.decision_topic,
    ) == ("p", "app", 0, "d")
    assert (
        options.on_replay_mismatch,
        options.skip_lost_batch,
        options.producer["transaction_timeout_ms"],
    ) == ("warn", 17, 5000)


def test_at_least_once_takes_any_acknowledgement() -> None:
    given = {"delivery": "at-least-once", "kafka.acks": "1", "kafka.enable.idempotence": "false"}
    options = parse_sink_options(SERVERS | given)
    assert options.delivery == "at-least-once"
    assert "transaction_timeout_ms" not in options.producer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"delivery": "at-most-once"},
            "option delivery must be exactly-once or at-least-once, got 'at-most-once'",
        ),
        ({"txnAppId": "a"}, "txnAppId and txnVersion belong together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion belong together"),
        (
            {"txnAppId": "a", "txnVersion": "-1"},
            "option txnVersion must be a whole number of at least 0, got '-1'",
        ),
        ({"txnAppId": " ", "txnVersion": "1"}, "option txnAppId is empty"),
        ({"onReplayMismatch": "ignore"}, "option onReplayMismatch must be fail or warn"),
        ({"skipLostBatch": "all"}, "option skipLostBatch must be a whole number"),
        (
            {"kafka.acks": "1"},
            (
                r"kafka\.acks=1 contradicts delivery=exactly-once, the default: leave it out, "
                r"or set delivery=at-least-once"
            ),
        ),
        (
            {"kafka.enable.idempotence": "false"},
            r"kafka\.enable\.idempotence=false contradicts delivery=exactly-once",
        ),
        (
            {"delivery": "at-least-once", "skipLostBatch": "1"},
            "option skipLostBatch needs delivery=exactly-once",
        ),
        (
            {"delivery": "at-least-once", "txnAppId": "a", "txnVersion": "1"},
            "option txnAppId needs delivery=exactly-once",
        ),
    ],
)
def test_what_does_not_go_together_is_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_sink_options(SERVERS | options)


def test_a_stream_has_an_id_of_its_own() -> None:
    with pytest.raises(ConfigError, match="txnAppId and txnVersion are for batch writes"):
        parse_sink_options({**SERVERS, "txnAppId": "a", "txnVersion": "1"}, streaming=True)
