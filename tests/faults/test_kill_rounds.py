"""The harness of the processors that are killed finds planted faults in ledgers, positions and
outputs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aioprod import TopicPartition
from tests.faults.harness.processors.kill_rounds import LedgerTail, ProcessorGroup
from tests.faults.harness.processors.member import Settings
from tests.interop.programs.reading import Stored

TP = TopicPartition("orders", 0)
RECORDS = 6


def watched(directory: Path, guarantee: str = "exactly_once") -> tuple[ProcessorGroup, Path]:
    """A group of which records of two keys were written, and the ledger of its one process."""
    settings = Settings("", "orders", "shipments", "g", "", {"guarantee": guarantee})
    group = ProcessorGroup("g", settings, [{}], directory)
    for offset in range(RECORDS):
        key = b"%d" % (offset % 2)
        group.stored[0].append(offset)
        group.keys[0, key].append(offset)
        group.values.append(b"%s:%d" % (key, offset))
    ledger = directory / "ledger"
    group._tails["a"] = LedgerTail(ledger)
    return group, ledger


def lines(*steps: tuple[str, int], start: float = 0.0) -> str:
    return "".join(
        f"{event}\t{start + number}\t0 {offset} {offset % 2}\n"
        for number, (event, offset) in enumerate(steps)
    )


def handled(*offsets: int, start: float = 0.0) -> str:
    steps = [(event, offset) for offset in offsets for event in ("begin", "done")]
    return lines(*steps, start=start)


def outputs(*offsets: int) -> list[Stored]:
    return [Stored(0, at, b"%d" % (o % 2), b"%d:%d" % (o % 2, o)) for at, o in enumerate(offsets)]


def test_nothing_is_found_without_a_fault(tmp_path: Path) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(handled(0, 1, 2))
    group.look({TP: 3})
    ledger.write_text(handled(0, 1, 2, 3, 4, 5) + "begin\t99")
    group.look({TP: 6})
    assert group.is_done({TP: 6})
    assert not group.is_done({TP: 5})
    assert not group.is_done({})
    assert group.judge(outputs(*range(RECORDS))) == []
    assert group.repeated() == 0


def test_a_handler_that_was_killed_is_called_again(tmp_path: Path) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(lines(("begin", 0)))
    other = tmp_path / "other"
    group._tails["b"] = LedgerTail(other)
    other.write_text(handled(*range(RECORDS), start=1.0))
    group.look({TP: 6})
    assert group.judge(outputs(*range(RECORDS))) == []
    assert group.repeated() == 1


def test_a_committed_hole_is_found(tmp_path: Path) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(handled(0, 2))
    group.look({TP: 3})
    [finding] = group.history.findings
    assert "committed up to 3, not done: [1]" in finding


def test_a_position_that_goes_back_is_found(tmp_path: Path) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(handled(0, 1, 2))
    group.look({TP: 3})
    group.look({TP: 2})
    [finding] = group.history.findings
    assert "from 3 to 2" in finding


def test_a_lost_record_is_found(tmp_path: Path) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(handled(0, 1, 2, 3, 4))
    group.look({})
    assert "(0, 5) is lost" in group.judge(outputs(*range(RECORDS)))


@pytest.mark.parametrize(
    ("offsets", "finding"),
    [((0, 1, 2, 3, 4, 2, 5), "0:2' has 2 outputs"), ((0, 1, 3, 4, 5), "0:2' has 0 outputs")],
)
def test_outputs_are_counted(tmp_path: Path, offsets: tuple[int, ...], finding: str) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(handled(*range(RECORDS)))
    group.look({})
    assert any(finding in found for found in group.judge(outputs(*offsets)))


def test_outputs_of_at_least_once_may_repeat_but_not_lack(tmp_path: Path) -> None:
    group, ledger = watched(tmp_path, "at_least_once")
    ledger.write_text(handled(*range(RECORDS)))
    group.look({})
    assert group.judge(outputs(0, 1, 2, 3, 4, 2, 5)) == []
    assert "has no output" in group.judge(outputs(0, 1, 2, 3, 4))[0]


@pytest.mark.parametrize("steps", [handled(0, 1, 4, 2), lines(("begin", 0), ("begin", 2))])
def test_a_key_out_of_order_is_found(tmp_path: Path, steps: str) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(steps)
    group.look({})
    assert any("although" in found or "before" in found for found in group.judge([]))


def test_an_error_that_ended_a_process_is_found(tmp_path: Path) -> None:
    group, ledger = watched(tmp_path)
    ledger.write_text(handled(*range(RECORDS)) + "error\t9.0\tFatalProducerError()\n")
    group.look({})
    assert "a: FatalProducerError()" in group.judge(outputs(*range(RECORDS)))
