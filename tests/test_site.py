"""What docs/_site changes on the pages of docs/ when mkdocs builds the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._site import pages

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_links_to_other_pages_are_kept() -> None:
    link = "[errors](producer.md#errors), [this](#here), [Kafka](https://kafka.apache.org)"
    assert pages.site_markdown(link, "docs/index.md") == link


def test_links_to_pages_of_the_root_lead_to_their_copies() -> None:
    assert pages.site_markdown("[help](../CONTRIBUTING.md)", "docs/index.md") == (
        "[help](contributing.md)"
    )
    assert pages.site_markdown("[send](docs/producer.md)", "CHANGELOG.md") == "[send](producer.md)"
    assert pages.site_markdown("[send](../producer.md)", "docs/api/types.md") == (
        "[send](../producer.md)"
    )


def test_links_to_other_files_become_text() -> None:
    assert pages.site_markdown("[examples](../examples)", "docs/producer.md") == ("examples")
    assert pages.site_markdown("[`.ci/run`](.ci/run)", "CONTRIBUTING.md") == "`.ci/run`"


def test_code_is_not_changed() -> None:
    code = "```python\ntext\n- [a](../b)\n```\n"
    assert pages.site_markdown(code, "docs/index.md") == code


def test_a_list_gets_the_blank_line_that_it_needs() -> None:
    text = "Three:\n- one\n  two\n- three\n\n1. four\nText.\n"
    assert pages.site_markdown(text, "docs/index.md") == text.replace(":\n-", ":\n\n-")


def test_a_diagram_becomes_its_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "IMAGES", tmp_path)
    source = "%% way: The way of a record\nflowchart LR\n"
    (tmp_path / "way.svg").write_text(f"<!-- {pages.diagram_sum(source)} -->")
    page = f"Before\n```mermaid\n{source}```\nAfter"
    assert pages.site_markdown(page, "docs/index.md") == (
        "Before\n![The way of a record](images/way.svg)\nAfter"
    )
    with pytest.raises(ValueError, match=r"way\.svg does not show the current diagram"):
        pages.site_markdown(page.replace("LR", "TD"), "docs/index.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pictures_of_diagrams_are_current(page: Path) -> None:
    markdown = page.read_text(encoding="utf-8")
    site = pages.site_markdown(markdown, page.relative_to(ROOT).as_posix())
    assert "```mermaid" not in site


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://cdn.example/mermaid.js">',
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<link href="//fonts.example" rel="preconnect">',
        "<img alt=x src=http://example/badge.svg>",
        '<pre class="mermaid">',
    ],
)
def test_an_asset_of_another_host_is_found(tag: str) -> None:
    assert pages.external_assets(f"<head>{tag}</head>") != []


def test_own_assets_and_links_are_no_finding() -> None:
    html = (
        '<script src="assets/javascripts/bundle.js"></script><img src="images/a.svg">'
        '<link rel="canonical" href="https://example"><a href="https://kafka.apache.org">Kafka</a>'
    )
    assert pages.external_assets(html) == []


def test_all_pages_are_in_the_navigation() -> None:
    listed = set(re.findall(r"[:-] (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    written = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES}
    assert listed == written | set(pages.ROOT_PAGES.values())
