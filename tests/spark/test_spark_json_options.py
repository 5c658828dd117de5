"""Options that are JSON: read as written, or a ConfigError that says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioprod import ConfigError, TopicPartition
from aioprod.spark.options import SINK_NAMES, SOURCE_NAMES
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source_options import SourceOptions, parse_source_options

MAX_OFFSET, MAX_PARTITION = 2**63 - 1, 2**31 - 1
Numbers = dict[TopicPartition, int]

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)
partitions = st.integers(0, 5) | st.integers(0, MAX_PARTITION)


def numbers(least: int) -> st.SearchStrategy[dict[str, dict[str, int]]]:
    each = st.integers(least, 9) | st.integers(least, MAX_OFFSET)
    inner = st.dictionaries(partitions.map(str), each, min_size=1, max_size=3)
    return st.dictionaries(topics, inner, min_size=1, max_size=3)


def parse(option: str, text: str) -> SourceOptions:
    select = {} if option == "assign" else {"subscribe": "t"}
    given = {"kafka.bootstrap.servers": "h:1", **select, option: text}
    return parse_source_options(given, streaming=False)


def flat(nested: dict[str, dict[str, int]]) -> Numbers:
    return {
        TopicPartition(topic, int(partition)): n
        for topic, inner in nested.items()
        for partition, n in inner.items()
    }


def explicit(which: str) -> Callable[[SourceOptions], Any]:
    return lambda options: getattr(options, which).explicit


LISTS = st.dictionaries(
    topics, st.lists(partitions, min_size=1, max_size=3, unique=True), min_size=1, max_size=3
)
# By option: what it may be, and what that is read as.
RIGHT: dict[str, tuple[st.SearchStrategy[Any], Callable[[SourceOptions], Any]]] = {
    "startingOffsets": (numbers(-2), explicit("starting")),
    "endingOffsets": (numbers(-1), explicit("ending")),
    "startingOffsetsByTimestamp": (numbers(0), explicit("starting")),
    "endingOffsetsByTimestamp": (numbers(0), explicit("ending")),
    "assign": (LISTS, lambda options: options.selection.partitions),
}
JSON = sorted(RIGHT)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
# Numbers that no offset, time or partition is.
NO_NUMBERS = [
    "true",
    "false",
    "null",
    '"1"',
    "1.0",
    "1.5",
    "1e3",
    "-3",
    "-99999999999999999999",
    "NaN",
    "Infinity",
    "-Infinity",
    "[]",
    "[1]",
    "{}",
    '{"0":1}',
    str(MAX_OFFSET + 1),
    "9" * 19,
    "9" * 400,
    "9" * 5_000,
    "0x1",
    "01",
    "1_000",
    "+1",
    "٣",
    "",
]
NO_PARTITIONS = [
    "",
    " ",
    "-1",
    "+1",
    "00",
    "01",
    "1_0",
    " 1",
    "1.0",
    "x",
    "٣",
    str(2**31),
    "9" * 400,
    "9" * 5_000,
]
NO_TOPICS = ["", ".", "..", "a b", "a/b", "ü", "\\ud800", "x" * 250, "a\\u0000"]
SHAPES = [
    "",
    "{",
    "}",
    "[]",
    "[0]",
    "{}",
    "7",
    "null",
    "true",
    '"t"',
    "NaN",
    "nothing",
    "'t'",
    '{"t":{"0":1},}',
    '{"t":{"0":1}} {}',
    '{"t"}',
    "{t:{0:1}}",
    "\ufeff{}",
    "\0",
    "\ud800",
    "[" * 100_000,
    '{"t":' * 100_000,
    '{"t":' + "[" * 5_000 + "]" * 5_000 + "}",
]


def nested(option: str, topic: str, partition: str, number: str) -> str:
    return (
        f'{{"{topic}":[{number}]}}'
        if option == "assign"
        else f'{{"{topic}":{{"{partition}":{number}}}}}'
    )


def malformed(option: str) -> list[str]:
    texts = [*SHAPES, *(nested(option, "t", "0", number) for number in NO_NUMBERS)]
    texts += [nested(option, topic, "0", "1") for topic in NO_TOPICS]
    texts += [
        f'{{"t":{value}}}'
        for value in ("null", "true", "1", '"0"', '"01"', "{}", "[]", "[[0]]", '[{"0":1}]')
    ]
    right = nested(option, "t", "0", "1")
    texts += [f"{right[:-1]},{right[1:]}"]  # the same topic twice
    if option == "assign":
        texts += ['{"t":{"0":1}}', f'{{"t":[{2**31}]}}', '{"t":[-1]}']
    else:
        texts += ['{"t":[0]}', '{"t":{"0":1,"0":2}}']
        texts += [nested(option, "t", partition, "1") for partition in NO_PARTITIONS]
    return texts


def refusal(option: str, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse(option, text)
    said = str(raised.value)
    assert said.startswith(f"option {option} ") and len(said) < 700, said[:1_000]
    return said


def test_every_json_option_is_in_the_table() -> None:
    """An option that takes JSON accepts one of these."""
    found = set()
    for name in SOURCE_NAMES:
        for text in ('{"t":{"0":1}}', '{"t":[0]}', '["t"]', '{"t":1}', "[1]"):
            try:
                parse(name, text)
            except ConfigError as error:
                if "exactly one of the options subscribe, assign" in str(error):
                    continue  # a name or pattern, which takes any text
            else:
                found.add(name)
    assert found == set(JSON) | {"subscribe"}
    for name in SINK_NAMES:
        try:
            parse_sink_options({"kafka.bootstrap.servers": "h:1", name: "{"})
        except ConfigError as error:
            assert "JSON" not in str(error), name


@pytest.mark.parametrize("option", JSON)
def test_a_malformed_value_is_refused_with_the_option_the_value_and_what_is_expected(
    option: str,
) -> None:
    for text in malformed(option):
        said = refusal(option, text)
        assert repr(text)[:50] in said and "JSON like {" in said, said
        assert said.count(": ") >= 1 and not said.endswith(": "), said


@pytest.mark.parametrize("option", JSON)
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_right_is_read_as_it_is_written(option: str, data: st.DataObject) -> None:
    strategy, read = RIGHT[option]
    value = data.draw(strategy)
    expected: Any = (
        flat(value)
        if option != "assign"
        else tuple(sorted(TopicPartition(t, p) for t in value for p in value[t]))
    )
    indent = data.draw(st.sampled_from([None, 2]))
    assert read(parse(option, json.dumps(value, indent=indent))) == expected


@pytest.mark.parametrize("option", JSON)
@settings(max_examples=60)
@given(
    st.one_of(
        anything.map(json.dumps),
        st.text(max_size=30),
        st.text('{}[]":,0123456789tTe-.\\ \n', max_size=20),
    )
)
@example('{"t":{"0":1}}')
def test_no_text_gives_anything_but_an_answer_or_a_config_error(option: str, text: str) -> None:
    try:
        options = parse(option, text)
    except ConfigError as error:
        assert f"option {option}" in str(error)
        return
    if text.strip().lower() in ("earliest", "latest"):
        return
    found = RIGHT[option][1](options)
    nested_found: dict[str, Any] = {}
    if option == "assign":
        for topic, partition in found:
            nested_found.setdefault(topic, []).append(partition)
        assert {t: sorted(set(p)) for t, p in json.loads(text).items() if p} == nested_found
    else:
        for (topic, partition), number in found.items():
            nested_found.setdefault(topic, {})[str(partition)] = number
        assert {t: n for t, n in json.loads(text).items() if n} == nested_found


WHOLE = [
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "minRecordsPerPartition",
    "startingTimestamp",
    "endingTimestamp",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "maxTriggerDelay",
]


@pytest.mark.parametrize("option", WHOLE)
def test_a_number_that_is_none_or_too_large_is_refused(option: str) -> None:
    for text in ("", "x", "1.5", "٣", "1_0", "0x1", "-1", "nan", "9" * 30, "9" * 31, "9" * 5_000):
        assert repr(text)[:20] in refusal(option, text)


@pytest.mark.parametrize("option", ["txnVersion", "skipLostBatch"])
def test_a_number_of_a_write_likewise(option: str) -> None:
    for text in ("", "x", "1.5", "-1", "9" * 30, "9" * 5_000):
        with pytest.raises(
            ConfigError, match=f"^option {option} must be a whole number of at least 0"
        ) as raised:
            parse_sink_options(
                {"kafka.bootstrap.servers": "h:1", "txnAppId": "a", "txnVersion": "1", option: text}
            )
        assert len(str(raised.value)) < 500
