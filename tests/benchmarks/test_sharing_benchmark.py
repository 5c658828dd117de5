"""The benchmark of share consumers runs from end to end. The test does not check durations."""

from __future__ import annotations

import pytest

from benchmarks import sharing

pytestmark = [pytest.mark.benchmarks, pytest.mark.kafka]


def test_each_client_reads_all_records(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    sharing.main(["--bootstrap", kafka, "--records", "2000", "--repetitions", "1"])
    output = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("|")]
    assert [row[1] for row in rows[2:]] == ["aioprod", "java"]


def test_records_that_are_missing_are_an_error(kafka: str) -> None:
    class Fewer:
        def request(self, *_: object) -> list[str]:
            return ["59", "5900", "1.0", "1.0"]

    with pytest.raises(RuntimeError, match="59 records of 5900 bytes were read, of 60"):
        sharing.share(Fewer(), kafka, "t", 60)  # type: ignore[arg-type]
