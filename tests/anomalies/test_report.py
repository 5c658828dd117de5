"""The matrix of docs/reliability.md shows what was measured."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.anomalies.cells import arranged
from tests.anomalies.chart import drawn
from tests.anomalies.faults import FAULTS
from tests.anomalies.report import OURS, PAGE, PICTURE, PageError, matrix, measured, with_matrix
from tests.anomalies.row import Row


def row(
    client: str, fault: str, gap: float, anomalies: dict[str, int], kafka: str = "4.4.0"
) -> Row:
    return Row(client, "1", kafka, fault, 1, 60.0, {"ok": 900, "failed": 200}, gap, anomalies)


def test_a_cell_has_the_longest_gap_and_the_anomalies_of_all_seeds() -> None:
    rows = [
        row("aioprod", "kill", 1.26, {}),
        row("aioprod", "kill", 3.12, {}),
        row("aioprod-pure", "kill", 2.0, {"hung": 1}),
        row("aioprod-pure", "kill", 1.0, {"hung": 1, "duplicate": 4}),
        row("aioprod", "none", 0.1, {}),
        row("aioprod", "none", 0.2, {}, "3.9.2"),
    ]
    assert matrix(rows).splitlines() == [
        "|fault|aioprod|aioprod-pure|",
        "|---|---|---|",
        "|no fault|0.1||",
        "|kill -9 of a node|3.1|2.0; 2 hung, 4 duplicate|",
        "|no fault (Kafka 3.9.2)|0.2||",
        "|operations|4,400|2,200|",
    ]


def test_the_picture_has_a_bar_for_each_cell_and_the_anomalies_in_red() -> None:
    rows = [
        row("aioprod", "kill", 4.0, {}),
        row("java", "kill", 1.0, {"hung": 2}),
        row("aioprod", "none", 0.1, {}),
    ]
    picture = drawn(arranged(rows))
    ElementTree.fromstring(picture)
    bars = re.findall(r'width="([\d.]+)" height="16" rx="2" fill="(#\w+)"', picture)
    [(least, _), (longest, _), (quarter, red)] = bars
    assert float(longest) == pytest.approx(4 * float(quarter), rel=0.02)
    assert float(least) < float(quarter)
    assert ">2 hung<" in picture and picture.count(red) == 2
    assert ">kill -9 of a node<" in picture and ">no fault<" in picture


def test_each_kind_of_anomaly_has_a_line_in_the_picture() -> None:
    """Side by side, they cover the next column."""
    rows = [row("aioprod", "kill", 4.0, {"unseen": 1, "hung": 2}), row("java", "none", 1.0, {})]
    picture = drawn(arranged(rows))
    texts = {text: int(y) for y, text in re.findall(r' y="(\d+)"[^>]*>([^<]+)</text>', picture)}
    assert texts["2 hung"] - texts["1 unseen"] >= 9
    assert texts["kill -9 of a node"] - texts["no fault"] == 34
    height = int(re.findall(r'viewBox="0 0 \d+ (\d+)"', picture)[0])
    assert texts["1 unseen"] < texts["2 hung"] < height


def test_the_page_has_the_measured_matrix() -> None:
    """Otherwise: ``python -m tests.anomalies.report``."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_matrix(page, measured()) == page
    assert PICTURE.read_text(encoding="utf-8") == drawn(arranged(measured()))
    assert f"images/{PICTURE.name}" in page


def test_the_page_names_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = measured()
    assert {each.fault for each in rows} <= {*FAULTS}
    for each in rows:
        assert f"Kafka {each.kafka}" in page
        assert each.client.startswith("aioprod") or each.version in page
        assert f"seed {each.seed}" in page


def test_ours_is_clean_in_a_million_operations() -> None:
    rows = measured(OURS)
    assert [each for each in rows if each.anomalies] == []
    assert {each.fault for each in rows} == {*FAULTS}
    schedules = {(each.fault, each.seed) for each in rows}
    operations = sum(each.operations for each in rows)
    assert len(schedules) >= 40 and operations >= 1_000_000
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{operations:,} operations under {len(schedules)} schedules" in page


def test_a_page_without_a_matrix_is_refused() -> None:
    with pytest.raises(PageError, match="0 tables"):
        with_matrix("|fault|aioprod|\n", [])
