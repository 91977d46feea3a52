"""The parts of the server: texts, captures, notes, waits, and what a failing check leaves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="needs the lsp extra")

from lsprotocol import types as lsp

from tests.report.programs import pair
from tilesim.files import MAX_SOURCE
from tilesim.lsp.captures import captured
from tilesim.lsp.findings import ERROR, INFORMATION, WARNING, Files, Note, Place, kernel_line, notes
from tilesim.lsp.server import Options, Server
from tilesim.lsp.text import Text, on_disk
from tilesim.lsp.waits import waits
from tilesim.mcp.child import Children
from tilesim.sim.observers.timeline import record
from tilesim.transforms.rewrite import Patch

LEANING = {"name": "U12", "kind": "practice", "text": "a copy", "denied": False}
RESULT: dict[str, Any] = {
    "kernel": "k.py::k", "verdict": "proved", "covers": "all", "leanings": [], "reasons": [],
    "findings": [], "diagnostics": [], "error": None, "stats": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "patch", "edit"),
    [
        ("a\r\nb\r\n", Patch("f", 2, 2, ("b",), ("c", "d")), ((1, 0), (2, 0), "c\r\nd\r\n")),
        ("a\nb", Patch("f", 2, 2, ("b",), ("c",)), ((1, 0), (1, 1), "c")),
        ("a\nb", Patch("f", 2, 1, (), ("c",)), ((1, 0), (1, 0), "c\n")),
        ("a\nb", Patch("f", 1, 1, ("b",), ("c",)), None),
        ("a\nb", Patch("f", 4, 4, (), ("c",)), None),
    ],
)
def test_a_patch_is_an_edit_of_its_own_text_only(source: str, patch: Patch, edit: Any) -> None:
    found = Text(source).edits([patch], len)
    if edit is None:
        assert found is None
    else:
        start, end, new = edit
        assert found == [lsp.TextEdit(lsp.Range(lsp.Position(*start), lsp.Position(*end)), new)]


def test_texts(tmp_path: Path) -> None:
    text = Text("\ufeff  a b  \r\nsecond\rlast")
    assert text.lines == ("  a b  ", "second", "last")
    assert text.span(1, len) == lsp.Range(lsp.Position(0, 2), lsp.Position(0, 5))
    assert text.span(99, len).start.line == 2
    large = tmp_path / "large.py"
    with large.open("wb") as file:
        file.truncate(MAX_SOURCE + 1)
    assert on_disk(large) is None
    assert on_disk(tmp_path) is None
    assert on_disk(tmp_path / "gone.py") is None


def test_captures_are_those_of_the_source(tmp_path: Path) -> None:
    """By their ``.file`` lines; by name only where there is no file that these name."""
    source, other = tmp_path / "k.cu", tmp_path / "other" / "k.cu"
    other.parent.mkdir()
    for file in (source, other):
        file.write_text("//")
    folder = tmp_path / "captured"
    folder.mkdir()
    names = {
        "own": str(source), "relative": "../k.cu", "elsewhere": "/build/k.cu",
        "foreign": str(other), "another": "/build/j.cu", "lost": str(source),
    }  # fmt: skip
    for name, named in names.items():
        (folder / f"{name}.ptx").write_text(f'.version 8.4\n\t.file\t1 "{named}"\n')
        if name != "lost":
            (folder / f"{name}.json").write_text("{}")
    hidden = tmp_path / ".hidden"
    hidden.mkdir()
    (hidden / "own.ptx").write_text(f'.file 1 "{source}"\n')
    (hidden / "own.json").write_text("{}")
    found = captured(source)
    assert [path.stem for path in found.fresh] == ["elsewhere", "own", "relative"]
    assert found.old == ()
    older = source.stat().st_mtime_ns - 10**9
    os.utime(folder / "own.ptx", ns=(older, older))
    assert [path.stem for path in captured(source).old] == ["own"]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A workspace with two files; ``k.py`` is checked."""
    for name in ("k.py", "helper.py"):
        (tmp_path / name).write_text("\n" * 9)
    (tmp_path / ".env").write_text("\n")
    return Files(str(tmp_path / "k.py"), str(tmp_path), (str(tmp_path),))


def test_places_are_lines_of_the_workspace(files: Files, tmp_path: Path) -> None:
    def place(**loc: Any) -> Place | None:
        return files.place(loc)

    assert place(file="helper.py", line=3) == Place(str(tmp_path / "helper.py"), 3)
    behind = {"file": "k.py", "line": 7}
    assert place(file="helper.py", line=3, behind=behind) == Place(files.owner, 7)
    assert place(file="/built/elsewhere/k.py", line=2) == Place(files.owner, 2)
    assert place(file=".env", line=1) is None
    assert place(file="/etc/passwd", line=1) is None
    assert place(file="<unknown>", line=0) is None


def test_notes_of_several_kernels(files: Files) -> None:
    leaning = LEANING | {"locations": [{"file": "k.py", "line": 4}, {"file": "k.py", "line": 6}]}
    assumed = leaning | {"name": "contents", "kind": "assumption"}
    several = [RESULT | {"kernel": f"k.py::k[n={n}]", "leanings": [leaning]} for n in range(5)]
    denied = RESULT | {"leanings": [assumed | {"denied": True}, assumed]}
    bounded = RESULT | {"verdict": "bounded", "reasons": ["why"], "kernel": "k.py::f"}
    wrong = RESULT | {"error": "k.py:5: SyntaxError: no", "verdict": "error"}
    unplaced = RESULT | {"error": "internal error: no", "verdict": "error"}
    text = Text("import x\nf = 3\ndef f(k): ...\n")
    found = notes([*several, denied, bounded, wrong, unplaced], files, text)
    assert [(n.severity, n.rule, n.place.line) for n in found] == [
        (WARNING, "U12", 4), (ERROR, "contents", 4), (INFORMATION, "", 3), (ERROR, "", 5),
        (INFORMATION, "", 1),
    ]  # fmt: skip
    assert found[0].message == (
        "proved only by leaning on U12: a copy\nkernel: k[n=0], k[n=1], k[n=2] and 2 more"
    )
    assert found[0].related == ((Place(files.owner, 6), "also"),)
    assert found[2].message == "bounded: no proof\nwhy\nkernel: f"
    assert found[3].message == "SyntaxError: no"


def test_repairs_are_of_files_that_are_worked_in(files: Files) -> None:
    def fixes(*patches: dict[str, Any] | None) -> tuple[Any, ...]:
        changes = [{"patch": patch} for patch in patches]
        repairs = {"found": [{"what": "it", "verdict": "proved", "changes": changes}]}
        diagnostic: dict[str, Any] = {"rule": "r", "message": "m", "locations": [], "fix": None}
        result = RESULT | {"repairs": repairs, "diagnostics": [diagnostic], "verdict": "rejected"}
        (note,) = notes([result], files, Text(""))
        return note.fixes

    own = {"file": "k.py", "first": 2, "last": 2, "old": ["a"], "new": ["b"]}
    (fix,) = fixes(own, own | {"first": 5, "last": 6, "old": ["a", "a"]}, own)
    assert [patch.first for patch in fix.patches] == [2, 5]
    assert fix.title == "it (proved)"
    assert fixes(own, None) == ()
    assert fixes(own, own | {"new": ["c"]}) == ()  # two at one line
    assert fixes(own | {"file": "/etc/passwd"}) == ()
    assert fixes(own | {"file": "helper.ptx"}) == ()


def test_lines_of_kernels() -> None:
    text = Text("x = f(1)\n  f = k\n@kernel\ndef f(k):\n.visible .entry g(\nvoid h<int>(\n")
    for name, line in {
        "a.py::f[n=1]": 4, "a.ptx::g": 5, "b.cu::ns::h<int>(int)": 6, "a.py::gone": 1, "a.py": 1,
    }.items():  # fmt: skip
        assert kernel_line(text, name) == line, name


def test_waits_of_a_deadlock_name_what_could_release_them() -> None:
    recording = record(pair.build(parity=0))
    entries = [entry for timeline in recording.timelines for entry in waits(timeline)]
    texts = [line["text"] for entry in entries for line in entry["lines"]]
    assert any(", for ever (" in text for text in texts)
    assert any("could be released by" in text for text in texts)
    assert all({"file", "line"} <= entry.keys() for entry in entries)


def test_the_server_goes_on_after_an_exception_in_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    server, said = Server(Options(False, 1, 1), Children(1)), []

    async def raises(*_: object) -> None:
        raise RuntimeError("within a check")

    monkeypatch.setattr("tilesim.lsp.server.DEBOUNCE", 0)
    monkeypatch.setattr(server, "_check_file", raises)
    monkeypatch.setattr(server, "_log", lambda text, kind: said.append((text, kind)))
    server.view.open["file:///k.py"] = "/k.py"
    asyncio.run(server._check("file:///k.py"))
    ((text, kind),) = said
    assert "RuntimeError: within a check" in text
    assert kind == lsp.MessageType.Error


def test_notes_are_one_line_each_that_a_terminal_obeys_not() -> None:
    note = Note(Place("/k.py", 1), ERROR, "race", "a\x1b[31mb")
    assert note.message == "a\\x1b[31mb"
