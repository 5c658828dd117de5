"""The page and the lines of README.md and docs/index.md, from the template and the numbers.

The template has ``{{value PART | CASE | CLIENT | METRIC}}``, ``{{ratio PART | CASE | CLIENT |
METRIC | BASELINE}}``, ``{{table NAME}}``, ``{{machine}}``, ``{{dates}}``, ``{{load}}``,
``{{missed}}`` and ``{{met}}``.
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.ceilings import Ceiling
from benchmarks.publish.parts import BY_NAME, PARTS, Published, read
from benchmarks.publish.tables import TABLES, Cell, Table
from benchmarks.results import Metric, spread
from benchmarks.targets import GrowthTarget, Target

ROOT = Path(__file__).parents[2]
TEMPLATE = Path(__file__).parent / "performance.md.in"
PAGE = ROOT / "docs" / "performance.md"
FRONTS = {
    ROOT / "README.md": "; [all measurements](docs/performance.md)",
    ROOT / "docs" / "index.md": " ([all measurements](performance.md))",
}
_COLUMNS = 100
_FRONT = """- **Fast on one event loop**: `await producer.send(...)` sends \
{{value sending | 100 B | aioprod | rate}} records/s of 100 bytes, \
{{ratio sending | 100 B | aioprod | rate | confluent-kafka}} times confluent-kafka's blocking \
`produce`, with {{ratio sending | 100 B | aioprod | cpu | confluent-kafka}} times its CPU time@@.
- **Cheaper in bulk**: `send_many` sends \
{{value bulk | 100 B | aioprod send_many | rate}} records/s, with \
{{ratio bulk | 100 B | aioprod send_many | cpu | confluent-kafka}} times that CPU time."""
_FRONT_LINES = re.compile(r"^- \*\*Fast on one event loop\*\*.*?(?=^- \*\*Correct)", re.M | re.S)
_PLACEHOLDER = re.compile(r"\{\{(\w+)\s*([^}]*)\}\}")
_RATIO_DIGITS = 2
_LARGE = 10_000


class UnknownNumberError(Exception):
    """The template names a number that was not measured."""


@cache
def published(part: str) -> Published:
    """Return the numbers of a part, read once."""
    return read(BY_NAME[part])


def numbers(cell: Cell) -> tuple[list[float], int]:
    """Return the values of a cell in each round, and the number of decimal places; no values if
    one of the clients was not measured.
    """
    found = published(cell.part)
    metric = found.part.metrics[cell.metric]
    of_case = found.results.rounds.get(cell.case, {})
    if cell.client not in of_case:
        return [], metric.digits
    if cell.base_case:
        return _grown(found, metric, cell), _RATIO_DIGITS
    if cell.baseline:
        if cell.baseline not in of_case:
            return [], _RATIO_DIGITS
        return found.results.ratios(metric, cell.case, cell.client, cell.baseline), _RATIO_DIGITS
    return found.results.values(metric, cell.case, cell.client), metric.digits


def _grown(found: Published, metric: Metric, cell: Cell) -> list[float]:
    values = found.results.values(metric, cell.case, cell.client)
    base = found.results.values(metric, cell.base_case, cell.client)
    return [own / other for own, other in zip(values, base, strict=True)]


def text(cell: Cell) -> str:
    """Return what a cell shows; empty if it was not measured."""
    values, digits = numbers(cell)
    if not values:
        return ""
    return spread(values, digits) if cell.ranges else _rounded(statistics.median(values), digits)


def _rounded(value: float, digits: int) -> str:
    """Return a number with as many decimal places, and large ones with three digits that count."""
    if value >= _LARGE:
        value = float(f"{value:.3g}")
    return f"{value:,.{digits}f}"


def table(found: Table) -> str:
    """Return a Markdown table. Rows without numbers are left out."""
    lines = [
        "| " + " | ".join([found.title, *(column.title for column in found.columns)]) + " |",
        "|" + "---|" * (len(found.columns) + 1),
    ]
    for row in found.rows:
        cells = [text(found.cell(row, column)) for column in found.columns]
        if any(cells):
            lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def misses() -> Iterator[tuple[str, bool]]:
    """Yield a row for each target that was measured, and whether it is met."""
    for part in PARTS:
        found = published(part.name)
        for target in part.targets(found.results):
            ratio = target.ratio(found.results)
            if ratio is not None:
                yield _target_row(part.name, target, ratio), not target.shortfall(found.results)
        for growth in part.growth:
            grown = growth.ratio(found.results)
            if grown is not None:
                yield _growth_row(part.name, growth, grown), grown <= growth.limit
        for ceiling in part.ceilings:
            if ceiling.client in found.results.rounds.get(ceiling.case, {}):
                yield _ceiling_row(found, ceiling)


def _target_row(part: str, target: Target, ratio: float) -> str:
    goal = f"{target.bound} {target.limit:g} times {target.baseline}"
    what = f"{target.client}: {target.metric.title}"
    return f"| {part}: {target.case} | {what} | {goal} | {ratio:.2f} |"


def _growth_row(part: str, growth: GrowthTarget, grown: float) -> str:
    what = f"{growth.client}: {growth.metric.title}"
    goal = f"at most {growth.limit:g} times {growth.base_case}"
    return f"| {part}: {growth.case} | {what} | {goal} | {grown:.2f} |"


def _ceiling_row(found: Published, ceiling: Ceiling) -> tuple[str, bool]:
    values = found.results.values(ceiling.metric, ceiling.case, ceiling.client)
    median = statistics.median(values)
    what = f"{ceiling.client}: {ceiling.metric.title}"
    row = (
        f"| {found.part.name}: {ceiling.case} | {what} | at most {ceiling.maximum:g} | "
        f"{median:.{ceiling.metric.digits}f} |"
    )
    return row, median <= ceiling.maximum


def missed() -> str:
    """Return a Markdown table of the targets that are missed."""
    rows = dict.fromkeys(row for row, met in misses() if not met)
    return "\n".join(["| measurement | what | target | measured |", "|---|---|---|---|", *rows])


def met() -> str:
    """Return how many of the targets are met."""
    rows = dict(misses())
    return f"{sum(rows.values())} of {len(rows)} targets are met"


def machine() -> str:
    """Return the machine, the interpreter and the versions, as sentences."""
    abouts = [published(part.name).about for part in PARTS]
    clients = {
        version
        for about in abouts
        for name, version in about["clients"].items()
        if name in ("confluent-kafka", "aiokafka", "franz-go", "java", "kafka-python")
        and any(map(str.isdigit, version))
    }
    machines = _unique(
        f"{each['processors']} cores of {each['processor']}, {each['memory_gb']} GB, "
        f"{each['system']}"
        for each in (about["machine"] for about in abouts)
    )
    brokers = _unique(f"Kafka {about['machine']['kafka']}" for about in abouts)
    interpreters = _unique(str(about["interpreter"]) for about in abouts)
    return f"{machines}; {interpreters}; {brokers}; {', '.join(sorted(clients))}"


def _unique(texts: Iterator[str]) -> str:
    return " and ".join(dict.fromkeys(texts))


def dates() -> str:
    """Return the first and the last date."""
    found = sorted(str(published(part.name).about["measured_at"])[:10] for part in PARTS)
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def load() -> str:
    """Return the smallest and largest load average before the parts."""
    found = sorted(float(published(part.name).about["load_before"]) for part in PARTS)
    return f"{found[0]:.1f}-{found[-1]:.1f}"


def _replacement(match: re.Match[str]) -> str:
    kind, given = match.groups()
    if kind == "table":
        return table(TABLES[given.strip()])
    simple: dict[str, Any] = {
        "machine": machine,
        "dates": dates,
        "load": load,
        "missed": missed,
        "met": met,
    }
    if kind in simple:
        return str(simple[kind]())
    # The template is wrapped, so spaces may be line breaks.
    part, case, client, metric, *baseline = (" ".join(each.split()) for each in given.split("|"))
    if (kind, len(baseline)) not in (("value", 0), ("ratio", 1)):
        raise UnknownNumberError(f"{match.group()}: must be a value, or a ratio to a baseline")
    found = text(Cell(part, case, client, metric, "".join(baseline), ranges=False))
    if not found:
        raise UnknownNumberError(f"{match.group()}: was not measured")
    return found


def filled(template: str) -> str:
    """Replace the placeholders, and wrap paragraphs.

    Raises:
        UnknownNumberError: if a number was not measured.
        FileNotFoundError: if a part was not measured.
    """
    replaced = _PLACEHOLDER.sub(_replacement, template)
    return "\n\n".join(_wrapped(block) for block in replaced.split("\n\n"))


def _wrapped(block: str) -> str:
    """Wrap a paragraph or the items of a list; leave tables, code, headings and pictures."""
    if re.match(r"\s*(\||#|`{3}|!|<)", block) or "\n|" in block:
        return block
    if block.startswith("- "):
        items = re.split(r"^- ", block.rstrip("\n"), flags=re.MULTILINE)[1:]
        return "\n".join(_fill(item, "- ", "  ") for item in items)
    return _fill(block) + "\n" * block.endswith("\n")


def _fill(paragraph: str, first: str = "", others: str = "") -> str:
    return textwrap.fill(
        " ".join(paragraph.split()),
        _COLUMNS,
        break_long_words=False,
        break_on_hyphens=False,
        initial_indent=first,
        subsequent_indent=others,
    )


def page() -> str:
    """Return docs/performance.md."""
    return filled(TEMPLATE.read_text(encoding="utf-8"))


def front(path: Path) -> str:
    """Return README.md or docs/index.md with today's numbers."""
    lines = filled(_FRONT.replace("@@", FRONTS[path])) + "\n"
    content, count = _FRONT_LINES.subn(lambda _: lines, path.read_text(encoding="utf-8"))
    if count != 1:
        raise UnknownNumberError(f"{path.name}: has no lines about speed")
    return content


def write() -> None:
    """Write the page, and the lines in README.md and docs/index.md."""
    PAGE.write_text(page(), encoding="utf-8")
    for path in FRONTS:
        path.write_text(front(path), encoding="utf-8")
