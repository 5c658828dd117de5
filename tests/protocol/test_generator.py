from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from aioprod._tools.emit import emit_api
from aioprod._tools.generate import (
    DEFINITIONS,
    MESSAGES,
    generate,
    load_apis,
    main,
)
from aioprod._tools.output import bring_up_to_date
from aioprod._tools.schema import SchemaError, parse_api
from aioprod.protocol.api_keys import ApiKey


def definition(*request_fields: str) -> str:
    return "\n".join(
        [
            "api Thing key 900",
            "",
            "request 0-4 flexible 2+",
            *request_fields,
            "",
            "response 0-4 flexible 2+",
            "  error_code: int16",
            "",
        ]
    )


def test_committed_messages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_check_finds_changed_missing_and_stray_files_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    assert main(["--output", str(tmp_path), "--check"]) == 0
    (tmp_path / "produce.py").write_text("changed")
    (tmp_path / "fetch.py").unlink()
    (tmp_path / "stray.py").write_text("")
    capsys.readouterr()
    assert main(["--output", str(tmp_path), "--check"]) == 1
    assert [
        Path(line.partition(": ")[2]).name for line in capsys.readouterr().out.splitlines()
    ] == ["fetch.py", "produce.py", "stray.py"]
    assert (tmp_path / "produce.py").read_text() == "changed"
    assert main(["--output", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in MESSAGES.glob("*.py")
    }


def test_up_to_date_files_are_not_touched(tmp_path: Path) -> None:
    files = {tmp_path / name: text for name, text in generate(load_apis()).items()}
    bring_up_to_date(files, check=False, directory=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    bring_up_to_date(files, check=False, directory=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert bring_up_to_date(files, check=True, directory=tmp_path) == 0


def test_generated_modules_keep_to_the_line_length() -> None:
    for name, text in generate(load_apis()).items():
        ast.parse(text, name)
        assert max(len(line) for line in text.splitlines()) <= 150, name


def test_definitions_have_the_highest_versions_of_kafka() -> None:
    highest = {api.key: api.request.versions.last for api in load_apis()}
    assert highest == {key: ApiKey(key).newest for key in highest}


def test_a_made_up_version_is_refused(tmp_path: Path) -> None:
    for path in DEFINITIONS.glob("*.api"):
        api = parse_api(path.read_text())
        first, last = api.request.versions.first, api.request.versions.last
        made_up = re.sub(
            r"(?m)^(request|response) [-\d]+", rf"\1 {first}-{last + 1}", path.read_text()
        )
        (tmp_path / path.name).write_text(made_up)
        above = rf"{path.name}: version \d+ is above {ApiKey(api.key).newest}, the highest"
        with pytest.raises(SchemaError, match=above):
            load_apis(tmp_path)
        (tmp_path / path.name).unlink()


def test_keys_and_versions_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thing.api").write_text(definition())
    with pytest.raises(SchemaError, match="API key 900 is not in"):
        load_apis(tmp_path)
    text = definition().replace("key 900", "key 0").replace("response 0-4", "response 0-3")
    (tmp_path / "thing.api").write_text(text)
    different = r"thing\.api: request and response have different versions"
    with pytest.raises(SchemaError, match=different):
        load_apis(tmp_path)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "thing.api").write_text(definition("  what is this"))
    with pytest.raises(SchemaError, match=r"thing\.api: not a field"):
        load_apis(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["  count: int33"], "unknown type"),
        (["  count: int32 3-9"], "not within 0-4"),
        (["  count: int32?"], "only strings"),
        (
            ["  topics: []Topic", "    name: string", "  others: []Topic", "    name: string"],
            "defined twice",
        ),
        (["  topics: []ThingResponse", "    name: string"], "more than one struct"),
        (["  topics: []Topic", "      name: string"], "indented too far"),
        (["  name: string", "    length: int32"], "can't have fields"),
        (["  struct Lonely", "    name: string"], "does not use Lonely"),
        (["  names: []string? 2+ tag 0"], "tagged array"),
    ],
)
def test_contradictory_definitions_are_refused(fields: list[str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_api(definition(*fields))


@pytest.mark.parametrize(
    ("line", "message"),
    [("  version: int32", "version can't be used"), ("  name: string = null", "never null")],
)
def test_fields_that_cannot_be_written_as_python_are_refused(line: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        emit_api(parse_api(definition(line)))


def test_a_request_and_a_response_are_wanted() -> None:
    with pytest.raises(SchemaError, match="a request and a response"):
        parse_api("api Thing key 900\nrequest 0-1\n  name: string\n")
    with pytest.raises(SchemaError, match="the request comes first"):
        parse_api("api Thing key 900\nresponse 0-1\n  name: string\nrequest 0-1\n  name: string\n")


def test_every_definition_has_its_module() -> None:
    assert {path.stem for path in DEFINITIONS.glob("*.api")} == {
        path.stem for path in MESSAGES.glob("*.py")
    } - {"__init__", "registry"}
