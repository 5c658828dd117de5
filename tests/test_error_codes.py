from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from aioprod.error_codes import ErrorCode


def test_all_codes_of_kafka_4_1_are_there() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_name_and_retriable_are_those_of_kafka(code: ErrorCode) -> None:
    """kio's table is generated from Kafka's source."""
    kio = KioErrorCode(int(code))
    assert code.name == kio.name.upper()
    assert code.retriable == kio.retriable


def test_codes_that_ask_for_new_metadata() -> None:
    """The subclasses of InvalidMetadataException in Kafka 4.1.0."""
    assert {int(code) for code in ErrorCode if code.refresh_metadata} == {
        3,
        5,
        6,
        9,
        13,
        56,
        72,
        74,
        80,
        83,
        84,
        100,
        103,
    }
    assert all(code.retriable for code in ErrorCode if code.refresh_metadata)


def test_descriptions_are_short_sentences_of_their_own() -> None:
    descriptions = [code.description for code in ErrorCode]
    assert len(set(descriptions)) == len(descriptions)
    assert all(5 < len(text) < 120 and not text.endswith(".") for text in descriptions)


def test_of_gives_a_member_for_every_number() -> None:
    assert ErrorCode.of(0) is ErrorCode.NONE
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(31999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_code_is_its_number() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert int(ErrorCode.NONE) == 0
    assert not ErrorCode.NONE
