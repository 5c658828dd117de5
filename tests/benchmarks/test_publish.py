"""docs/performance.md, README.md and docs/index.md show what was measured, and nothing else."""

from __future__ import annotations

import json
import re
import statistics
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from kafka-python
    from benchmarks.broker import broker_process
    from benchmarks.publish import __main__ as publish
    from benchmarks.publish import page
    from benchmarks.publish.parts import BY_NAME, PARTS, Part
    from benchmarks.publish.tables import TABLES, Cell

measured = pytest.mark.skipif(
    not any(part.file.exists() for part in PARTS),
    reason="nothing was measured yet: python -m benchmarks.publish",
)
AGAIN = "write it again: python -m benchmarks.publish --parts ''"
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


@pytest.fixture(autouse=True)
def read_again() -> Iterator[None]:
    yield
    page.published.cache_clear()


@measured
def test_the_page_shows_what_was_measured() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), AGAIN


@measured
@pytest.mark.parametrize("path", page.FRONTS, ids=lambda path: path.name)
def test_the_fronts_show_what_was_measured(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == page.front(path), AGAIN


def test_every_measured_number_of_the_template_comes_from_a_file() -> None:
    """Prose has no decimals: these are measurements, and belong in placeholders."""
    template = page.TEMPLATE.read_text(encoding="utf-8")
    prose = re.sub(r"\{\{.*?\}\}|```.*?```|`[^`]*`", "", template, flags=re.DOTALL)
    decimals = [found for found in NUMBER.findall(prose) if "." in found]
    assert decimals == ["3.11", "1.2", "3.14"], "a target, and versions of Python"


@measured
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_was_measured_by_its_command(part: Part) -> None:
    about = json.loads(part.file.read_text(encoding="utf-8"))
    command = ["python", "-m", f"benchmarks.{part.module}", *part.arguments]
    assert about["command"] == command, "measure this part again"
    assert about["machine"]["processor"] and about["measured_at"] and about["load_before"] >= 0
    assert "PGO" in about["interpreter"]


@measured
@pytest.mark.parametrize("name", TABLES)
def test_each_table_has_numbers_of_each_part(name: str) -> None:
    found = TABLES[name]
    lines = page.table(found).splitlines()
    assert lines[0].count("|") == lines[1].count("|") == len(found.columns) + 2
    assert len(lines) > 2
    assert f"{{{{table {name}}}}}" in page.TEMPLATE.read_text(encoding="utf-8")


@measured
def test_a_cell_is_the_median_of_the_rounds() -> None:
    found = page.published("sending")
    (case, clients), *_ = found.results.rounds.items()
    rounds = clients["aioprod"], clients["confluent-kafka"]
    cost = [
        own["cpu_s"] / own["records"] / (other["cpu_s"] / other["records"])
        for own, other in zip(*rounds, strict=True)
    ]
    cell = Cell("sending", case, "aioprod", "cpu", "confluent-kafka", ranges=False)
    assert page.text(cell) == f"{statistics.median(cost):.2f}"
    assert page.text(replace(cell, client="nothing")) == ""
    assert page.text(replace(cell, baseline="nothing")) == ""


@measured
def test_other_numbers_are_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = page.page()
    for numbers in page.published("sending").results.rounds["100 B"]["aioprod"]:
        numbers["cpu_s"] *= 3
    assert page.page() != before


@measured
@pytest.mark.parametrize(
    "placeholder",
    [
        "{{value sending | 100 B | nothing | rate}}",
        "{{value sending | 100 B | aioprod | rate | confluent-kafka}}",
        "{{ratio sending | 100 B | aioprod | rate}}",
    ],
)
def test_a_number_that_was_not_measured_is_an_error(placeholder: str) -> None:
    with pytest.raises(page.UnknownNumberError, match="sending"):
        page.filled(placeholder)


def test_a_part_without_numbers_says_how_to_measure_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.publish.parts.MEASURED", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"benchmarks\.publish --parts sending"):
        page.page()


def test_paragraphs_are_wrapped_and_tables_are_not() -> None:
    wide = "| " + "a" * 120 + " |"
    text = page.filled("# A\n\n" + "word " * 40 + "\n\n" + wide + "\n\n- " + "item " * 30 + "\n- b")
    assert wide in text.splitlines()
    assert max(len(line) for line in text.splitlines() if line != wide) <= 100
    assert text.splitlines()[-1] == "- b"


def test_a_quick_run_writes_no_page() -> None:
    with pytest.raises(SystemExit, match="2"):
        publish.main(["--quick"])
    with pytest.raises(SystemExit, match="2"):
        publish.main(["--parts", "everything"])


@pytest.mark.slow
def test_a_part_is_measured_into_a_file(tmp_path: Path) -> None:
    with broker_process({}) as servers:
        chosen = ["--quick", "--directory", str(tmp_path), "--bootstrap", servers]
        publish.main([*chosen, "--parts", "bursts"])
    about = json.loads((tmp_path / "bursts.json").read_text())
    assert list(about["rounds"]) == ["20 tasks", "500 tasks"]
    assert about["command"][2] == "benchmarks.bursts"


@pytest.mark.benchmarks
@pytest.mark.kafka
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", BY_NAME)
def test_each_part_is_measured(part: str, tmp_path: Path) -> None:
    publish.main(["--quick", "--directory", str(tmp_path), "--parts", part])
    about = json.loads((tmp_path / f"{part}.json").read_text())
    assert about["rounds"]
