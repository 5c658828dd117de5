"""Draws the first table of docs/performance.md into docs/images/producer-rates.svg."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from pages import IMAGES, ROOT

PICTURE = IMAGES / "producer-rates.svg"
_ROW = re.compile(
    r"^\| ([^|]+) \| ([\d.]+)(?: \([^|]*\))? \| ([\d.]+)(?: \([^|]*\))? \|$", re.MULTILINE
)
_NAMES, _BAR, _GAP, _ROW_HEIGHT, _TOP = 200, 170, 100, 30, 64
_WIDTH = _NAMES + 2 * (_BAR + _GAP)
_TEAL, _INK = "#00897b", "#212121"


def rows(page: str) -> list[tuple[str, str, str]]:
    """Return what was sent, rate and CPU time, of the page's first table."""
    table = page.partition("\n## ")[2].partition("\n### ")[0]
    return [(name.replace("`", ""), rate, cpu) for name, rate, cpu in _ROW.findall(table)]


def drawn(page: str) -> str:
    """Return the picture of a page's first table."""
    found = rows(page)
    height = _TOP + _ROW_HEIGHT * len(found) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="14">',
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#fff"/>',
    ]
    for place, title in ((1, "records/s"), (2, "CPU per record")):
        scale = _BAR / max(1.0, *(float(row[place]) for row in found))
        left = _NAMES + (place - 1) * (_BAR + _GAP)
        parts.append(_text(left, 22, title, weight=600))
        for number, row in enumerate(found):
            top = _TOP + number * _ROW_HEIGHT
            width = float(row[place]) * scale
            parts.append(
                f'<rect x="{left}" y="{top}" width="{width:.1f}" height="18" rx="2" '
                f'fill="{_TEAL}"/>'
            )
            parts.append(_text(left + max(width, scale) + 6, top + 14, f"{row[place]}x"))
        one = left + scale
        parts.append(
            f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{_TOP - 8}" y2="{height - 14}" '
            f'stroke="{_INK}" stroke-dasharray="3 3"/>'
        )
        parts.append(_text(one, _TOP - 14, "confluent-kafka = 1", anchor="middle", color="#616161"))
    for number, row in enumerate(found):
        top = _TOP + number * _ROW_HEIGHT
        parts.append(_text(_NAMES - 12, top + 14, row[0], anchor="end"))
    return "\n".join([*parts, "</svg>", ""])


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: int = 400, color: str = _INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{color}">{text}</text>'
    )


def main() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    PICTURE.write_text(drawn(page), encoding="utf-8")


if __name__ == "__main__":
    main()
