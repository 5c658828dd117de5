"""Draws the Mermaid diagrams of docs/*.md into docs/images, for the site.

Needs Node.js and Chromium. `MERMAID` may name the command, such as
"node_modules/.bin/mmdc --puppeteerConfigFile no-sandbox.json"; the default is npx.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from pages import IMAGES, MERMAID, ROOT, diagram_sum

COMMAND = os.environ.get("MERMAID", "npx --yes @mermaid-js/mermaid-cli")
CONFIG = '{"theme": "neutral", "htmlLabels": false, "flowchart": {"htmlLabels": false}}'
LIMIT_S = 120


def draw(name: str, source: str) -> None:
    """Draw one diagram. The picture contains the digest of its source."""
    picture = IMAGES / f"{name}.svg"
    with tempfile.TemporaryDirectory() as directory:
        diagram, config = Path(directory, "diagram.mmd"), Path(directory, "config.json")
        diagram.write_text(source, encoding="utf-8")
        config.write_text(CONFIG, encoding="utf-8")
        arguments = ["-i", diagram, "-o", picture, "-c", config, "-b", "white", "--svgId", name]
        subprocess.run([*shlex.split(COMMAND), *arguments], check=True, timeout=LIMIT_S)
    svg = picture.read_text(encoding="utf-8")
    picture.write_text(f"{svg}<!-- {diagram_sum(source)} -->\n", encoding="utf-8")


def main() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for fence in MERMAID.finditer(page.read_text(encoding="utf-8")):
            source, name, _ = fence.groups()
            draw(name, source)


if __name__ == "__main__":
    main()
