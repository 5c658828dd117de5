"""Changes that mkdocs.yml makes to the pages of docs/, which GitHub shows unchanged.

The build needs no other host than the package registries, and the built pages load nothing from
another host; `on_post_build` fails if one does.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import settings

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "docs" / "images"
# Pages of the repository's root that the site shows, too.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "HISTORY.md": "history.md",
    "SECURITY.md": "security-policy.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)")
_FENCE = re.compile(r"^ *```.*?^ *```\n", re.MULTILINE | re.DOTALL)
MERMAID = re.compile(r"^```mermaid\n(%% (\S+): ([^\n]*)\n.*?)^```\n", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ")
_ASSET = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|modulepreload))"
    r"[^>]*\bhref=[\"']?(?:https?:)?//[^>]*>"
    r"|<pre class=[\"']?mermaid[^>]*>"  # Material would load a renderer from another host
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository's root."""
    from mkdocs.structure.files import File

    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make the page's Markdown fit for the site."""
    source = page.file.src_uri
    if source == settings.PAGE:
        markdown = settings.with_anchors(markdown)
    original = {page: source for source, page in ROOT_PAGES.items()}.get(source, f"docs/{source}")
    return site_markdown(markdown, original)


def site_markdown(markdown: str, original: str) -> str:
    """Convert the Markdown of a page, which is at a path in the repository."""
    markdown = MERMAID.sub(_picture, markdown)
    parts = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        parts += [_prose(markdown[end : fence.start()], original), fence.group()]
        end = fence.end()
    return "".join([*parts, _prose(markdown[end:], original)])


def _prose(text: str, original: str) -> str:
    text = _LINK.sub(lambda link: _site_link(link, original), text)
    return "\n".join(_with_breaks_before_lists(text.split("\n")))


def _site_link(link: re.Match[str], original: str) -> str:
    """Let a link lead to a page of the site; to other files of the repository there is no link."""
    text, target, anchor = link.group(1), link.group(2), link.group(3) or ""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(original), target))
    if path in ROOT_PAGES:
        path = f"docs/{ROOT_PAGES[path]}"
    elif not path.startswith("docs/"):
        return text if text.strip("`") == path else f"{text} (`{path}`)"
    here = posixpath.dirname(original) if original.startswith("docs/") else "docs"
    return f"[{text}]({posixpath.relpath(path, here)}{anchor})"


def _with_breaks_before_lists(lines: list[str]) -> Iterator[str]:
    """Add the blank line that Python-Markdown, unlike GitHub, needs before a list."""
    in_list = False
    for number, line in enumerate(lines):
        if _ITEM.match(line):
            if not in_list and number and lines[number - 1].strip():
                yield ""
            in_list = True
        elif not line.strip() or not line.startswith(" "):
            in_list = in_list and bool(line.strip())
        yield line


def _picture(fence: re.Match[str]) -> str:
    """Replace a Mermaid diagram with its picture in docs/images."""
    source, name, description = fence.groups()
    picture = IMAGES / f"{name}.svg"
    if not picture.exists() or diagram_sum(source) not in picture.read_text(encoding="utf-8"):
        raise ValueError(
            f"docs/images/{name}.svg does not show the current diagram; "
            "make it again with: python docs/_site/draw.py"
        )
    return f"![{description}](images/{name}.svg)\n"


def diagram_sum(source: str) -> str:
    """The digest of a diagram's source, which its picture contains."""
    return hashlib.sha256(source.encode()).hexdigest()


def external_assets(html: str) -> list[str]:
    """The tags that make a browser load something from another host."""
    return [tag.group() for tag in _ASSET.finditer(html)]


def on_post_build(config: Any) -> None:
    """Fail if a built page loads something from another host."""
    found = {
        path.name: tags
        for path in Path(config.site_dir).rglob("*.html")
        if (tags := external_assets(path.read_text(encoding="utf-8")))
    }
    if found:
        raise ValueError(f"pages that load something from another host: {found}")
