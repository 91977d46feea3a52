"""The JSON Schema of reports is that of the reports that there are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import ValidationError, convert

from tilesim.cli import main
from tilesim.report.document import Document, Line, json_schema

from .programs import file, pair

CALLED = """import tilesim as ts


def fill(k, word, value):
    k.mem.store(word[0], value)


@ts.kernel(warps=2)
def called(k, *, n=4):
    word = k.shared("word", ts.s32, (1,))
    for warp in range(2):
        with k.role(f"r{warp}", warp), k.elected(), k.loop(n):
            fill(k, word, 1)
"""
REJECTED = CALLED.replace("(1,))", "(1 << 30,))")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What ``tilesim`` prints in a folder with kernels."""
    monkeypatch.chdir(tmp_path)
    Path("pair.py").write_text(file(pair))
    Path("called.py").write_text(CALLED)
    Path("rejected.py").write_text(REJECTED)
    return lambda *arguments: CliRunner().invoke(main, arguments).stdout


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["pair.py", "called.py", "rejected.py", "gone.py", "--times"], {"seconds", "calls"}),
        (["pair.py", "--param", "parity=0", "--suggest=1s"], {"repairs", "patch", "witness"}),
        (["pair.py", "--param", "parity=1", "--recheck"], {"rechecked", "leanings"}),
        (["called.py", "--for-all", "n"], {"for_all", "said"}),
    ],
)
def test_reports_are_of_the_types_that_the_schema_is_made_of(
    options: list[str], keys: set[str], run: Callable[..., str]
) -> None:
    text = run("check", *options, "--format", "json")
    assert [key for key in keys if f'"{key}"' not in text] == []
    document = json.loads(text)
    document["interrupted"] = {"kernel": "k", "not_started": 2}
    assert convert(document, Document) == document  # keys that are not known would be left out
    for text in run("check", *options, "--format", "jsonl").splitlines():
        line = json.loads(text)
        assert convert(line, Line) == line
    document["results"][0]["verdict"] = "prooved"
    with pytest.raises(ValidationError):
        convert(document, Document)


def test_the_command_writes_the_schema(run: Callable[..., str]) -> None:
    written = json.loads(run("report-schema"))
    assert written == json_schema()
    assert written["title"] == "A report of tilesim check, schema 1"
    assert written["$ref"] == "#/$defs/Document"
    place = written["$defs"]["Place"]
    assert place["description"] == "A line of source."
    assert place["required"] == ["file", "line"]
    assert place["properties"]["calls"] == {
        "type": "array", "items": {"$ref": "#/$defs/Place"},
    }  # fmt: skip
    assert {"number", "kernel"} <= set(written["$defs"]["Line"]["required"])
