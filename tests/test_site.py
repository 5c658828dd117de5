"""docs/_site changes the pages of docs/ as intended when mkdocs builds the site."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import aioprod
from docs._site import draw_table, pages, settings
from tests.testing.doc_blocks import WITHOUT_UVLOOP

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


def test_the_first_chart_shows_the_first_table() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert len(draw_table.rows(page)) == 7
    assert draw_table.PICTURE.read_text(encoding="utf-8") == draw_table.drawn(page), (
        "draw it again: python docs/_site/draw_table.py"
    )
    for front in (page, (ROOT / "docs" / "index.md").read_text(encoding="utf-8")):
        (first, *_) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", front)
        assert first == "images/producer-rates.svg"


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda p: p.stem
)
def test_a_picture_loads_nothing_from_other_hosts(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert re.findall(r"url\(['\"]?https?:[^)]*\)|href=['\"]https?:[^'\"]*", text) == []


@pytest.mark.parametrize("client", settings.HEADINGS)
def test_the_settings_of_a_client_lead_to_their_rows(client: str) -> None:
    page = (ROOT / "docs" / settings.PAGE).read_text(encoding="utf-8")
    anchors = re.findall(r'<a id="([^"]+)"></a>`', settings.with_anchors(page))
    assert len(set(anchors)) == len(anchors) == len(settings.rows(page))
    shown = settings.table(client)
    links = re.findall(r'#([\w-]+)" title="[^"]{10,}"><code>(\w+)</code>', shown)
    assert {link for link, _ in links} <= set(anchors)
    known = {field.name for field in dataclasses.fields(getattr(aioprod, f"{client}Config"))}
    plug_ins = {"bootstrap_servers"}
    assert {name for _, name in links} | plug_ins >= known


def test_the_arguments_that_few_need_are_the_last() -> None:
    docstring = aioprod.Producer.__doc__ or ""
    shown = settings.described("Producer", inspect.cleandoc(docstring))
    names = re.findall(
        r"^    (\w+):", shown.partition("Args:")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert names[0] == "bootstrap_servers" and names[-2:] == ["clock", "rng"]
    assert "<details>" in shown.partition("Args:")[0]


#: What new users ask first, and the heading that answers it.
ANSWERS = {
    "JSON": ("recipes/json.md", "# JSON"),
    "pydantic": ("recipes/pydantic.md", "# pydantic"),
    "errors of a record": ("producer.md", "## Errors"),
    "retries": ("processing.md", "## Retries"),
    "SCRAM and TLS": ("recipes/scram-tls.md", "# SCRAM and TLS"),
    "MSK": ("services.md", "## Amazon MSK"),
    "Confluent Cloud": ("services.md", "## Confluent Cloud"),
    "Event Hubs": ("services.md", "## Azure Event Hubs"),
    "Redpanda": ("services.md", "## Redpanda"),
    "shutdown on Kubernetes": ("recipes/kubernetes.md", "# Kubernetes"),
    "several consumers": ("recipes/several-consumers.md", "# Several consumers"),
    "tests without Docker": ("testing.md", "# Test an application"),
    "lag in Prometheus": ("observability.md", "## A dashboard in ten minutes"),
    "from aiokafka": ("migrating-aiokafka.md", "# From aiokafka"),
    "exactly once": ("processing.md", "## Guarantees"),
    "tuning": ("producer.md", "## Tuning"),
}


@pytest.mark.parametrize("question", ANSWERS)
def test_the_first_page_has_a_link_to_the_answer(question: str) -> None:
    page, heading = ANSWERS[question]
    docs = ROOT / "docs"
    assert heading in (docs / page).read_text(encoding="utf-8").splitlines()
    level, _, title = heading.partition(" ")
    anchor = f"#{title.lower().replace(' ', '-')}" if level != "#" else ""
    assert f"]({page}{anchor})" in (docs / "index.md").read_text(encoding="utf-8")


def test_the_quickstart_says_what_to_write_without_uvloop() -> None:
    assert f"`{WITHOUT_UVLOOP}`" in (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    source = f"{WITHOUT_UVLOOP}\n\nasync def main():\n    return 7\n\ndone = uvloop.run(main())"
    names: dict[str, object] = {}
    exec(source, names)
    assert names["done"] == 7
