"""``tilesim lsp``, asked by a client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="needs the lsp extra")

from lsprotocol import types as lsp

from tests.cli import kernels
from tests.lsp.client import LONG, Editor, applied, editor

#: a line with a character of two units of UTF-16, at the wait that hangs
BAD = kernels.BAD.replace("int(parity))\n", "int(parity))  # \N{SNAKE} waits\n", 1)
WAIT = 1 + BAD[: BAD.index("k.mbarrier.wait(empty")].count("\n")
FULL = 1 + BAD[: BAD.index("k.mbarrier.wait(full")].count("\n")
#: waits in a loop for an arrival that no instruction makes; line 3 of its source is the wait
HANG = """\
.version 8.4
.target sm_90a
.address_size 64
.visible .entry hang()
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .shared .align 8 .b64 full;
    .loc 1 2 5
    mov.u32 %r1, full;
    mov.u32 %r2, 1;
    mbarrier.init.shared::cta.b64 [%r1], %r2;
    .loc 1 3 5
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
    @!%p1 bra WAIT;
    ret;
}
.file 1 "/built/elsewhere/hang.cu"
"""
SOURCE = "__global__ void hang() {\n    init(&full, 1);\n    wait(&full, 0);\n}\n"
LAUNCH = {"schema": "tilesim.launch/1", "entry": "hang", "grid": [1], "block": [1], "params": []}
#: says in a file of its name that it was run, and which process runs it, and does not end
ENDLESS = f"""{kernels.HEAD}
import os
import time

# a kernel
with open(__file__ + ".ran", "w") as file:
    file.write(str(os.getpid()))
try:
    while True:
        time.sleep(60)
except KeyboardInterrupt:  # its time is over
    open(__file__ + ".interrupted", "w").close()
    raise
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace, whose name has blanks."""
    place = tmp_path / "my kernels"
    place.mkdir()
    return place


def test_a_kernel_from_finding_to_repair(folder: Path) -> None:
    """With Windows' line ends, and beside a module that would stand in for one of Python's."""
    path, text = folder / "bad kernel.py", BAD.replace("\n", "\r\n")
    path.write_bytes(text.encode())
    (folder / "json.py").write_text("raise SystemExit(1)\n")

    async def use() -> None:
        async with editor(folder, "--suggest=60s", trusted=True) as client:
            client.open(path)
            (found,) = await client.checked(path)
            _is_the_deadlock(found, path)
            await client.until(lambda: len(client.progress) == 3)
            kinds = [p.value["kind"] for p in client.progress]
            assert kinds == ["begin", "report", "end"]
            assert "for ever" in await client.hover(path, WAIT)
            assert "could be released by mbarrier.arrive" in await client.hover(path, WAIT)
            (first, *_) = await client.actions(path, WAIT)
            assert first.title.endswith("(proved)")
            assert first.is_preferred
            assert await client.actions(path, WAIT + 1) == []
            assert first.edit is not None
            assert first.edit.changes is not None
            mended = applied(text, [*first.edit.changes[path.as_uri()]])
            assert mended.count("\r\n") == mended.count("\n") == text.count("\n")

            client.change(path, mended, save=False)
            assert await client.actions(path, WAIT) == []  # of another text
            assert await client.hover(path, WAIT) == ""
            client.change(path, mended, save=True)
            assert await client.checked(path) == []
            definition = 1 + text[: text.index("def handshake")].count("\n")
            assert (await client.hover(path, definition)).startswith(
                "**proved** `handshake`: every"
            )
            said = await client.hover(path, FULL)
            assert "**full[0]**: waits for phases 0 to 1 (each 1 arrival)\n" in said
            assert "released by producer warp 0, which arrives on full[0] (2 waits)" in said
            assert "`k.mbarrier.arrive(full)`" in said

    asyncio.run(use())


def _is_the_deadlock(found: lsp.Diagnostic, path: Path) -> None:
    line = BAD.splitlines()[WAIT - 1]
    assert found.severity == lsp.DiagnosticSeverity.Error
    assert (found.source, found.code) == ("tilesim", "deadlock")
    assert found.code_description == lsp.CodeDescription("https://d/findings/deadlock")
    assert found.range.start == lsp.Position(WAIT - 1, len(line) - len(line.lstrip()))
    assert found.range.end == lsp.Position(WAIT - 1, len(line) + 1)
    assert "\ncause: " in found.message
    assert "\nfix: " in found.message
    assert found.message.endswith("\nkernel: handshake")
    also = {i.location.range.start.line + 1: i.message for i in found.related_information or ()}
    assert "waits on full[0] parity 0" in also[FULL]
    assert {i.location.uri for i in found.related_information or ()} == {path.as_uri()}


def test_what_is_not_proved_is_told(folder: Path, tmp_path: Path) -> None:
    """Several kernels, an error of Python, files that are not for it; the server goes on."""
    texts = {
        "open.py": kernels.OPEN + kernels.UNSUPPORTED.replace("import tilesim as ts\n", ""),
        "wrong.py": f"{kernels.HEAD}@ts.kernel(warps=1)\ndef f(k:\n    pass\n",
        "script.py": "import tilesim as ts\n\nprint('no kernel')\n",
        "alone.ptx": HANG,
        "changed.ptx": HANG,
    }
    paths = {name: folder / name for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text)
    outside = tmp_path / "outside.py"
    outside.write_text(ENDLESS)

    async def use() -> None:
        async with editor(folder, "--suggest=0.1s", trusted=True) as client:
            client.open(paths["changed.ptx"], HANG + "// not saved\n")
            for path in (*paths.values(), outside):
                if path != paths["changed.ptx"]:
                    client.open(path)
            note = await client.noted(outside, "not part of the workspace")
            assert note.severity == lsp.DiagnosticSeverity.Information
            note = await client.noted(paths["alone.ptx"], "there is no alone.json")
            assert note.severity == lsp.DiagnosticSeverity.Information
            (error,) = await client.checked(paths["wrong.py"])
            assert error.message.startswith("SyntaxError: ")
            assert error.severity == lsp.DiagnosticSeverity.Error
            assert texts["wrong.py"].splitlines()[error.range.start.line] == "def f(k:"
            found = await client.checked(paths["open.py"])
            notes = {d.message.splitlines()[0]: d for d in found}
            bounded = notes["bounded: no proof"]
            assert bounded.severity == lsp.DiagnosticSeverity.Information
            lines = texts["open.py"].splitlines()
            assert lines[bounded.range.start.line].startswith("def unknown_count")
            assert await client.checked(paths["script.py"]) == []
            assert paths["changed.ptx"].as_uri() not in client.diagnostics

    asyncio.run(use())
    assert not (tmp_path / "outside.py.ran").exists()


def test_sources_of_captures(folder: Path) -> None:
    """PTX and launches beside a source are checked; no Python runs, as no one says that it may."""
    source, captured = folder / "hang.cu", folder / "build" / "captured"
    captured.mkdir(parents=True)
    source.write_text(SOURCE)
    (captured / "hang.ptx").write_text(HANG)
    (captured / "hang.json").write_text(json.dumps(LAUNCH))
    (folder / "click.py").write_text("open(__file__ + '.ran', 'w').close()\n")
    (folder / "code.py").write_text(ENDLESS)

    async def use() -> None:
        async with editor(folder, "--suggest=0.1s") as client:
            client.open(source)
            client.open(folder / "code.py")
            note = await client.noted(folder / "code.py", "the workspace is not trusted")
            assert ENDLESS.splitlines()[note.range.start.line] == "# a kernel"
            (found,) = await client.checked(source)
            assert found.code == "deadlock"
            assert found.range.start == lsp.Position(2, 4)
            assert "for ever" in await client.hover(source, 3)

            client.change(source, SOURCE + "// more\n", save=True)
            later = source.stat().st_mtime_ns + 10**9
            os.utime(source, ns=(later, later))
            note = await client.noted(source, "are of an earlier text")
            assert os.path.join("build", "captured") in note.message
            waits_not = HANG.partition("WAIT:\n")[0] + "    ret;\n}\n" + HANG.rpartition("}\n")[2]
            (captured / "hang.ptx").write_text(waits_not)
            os.utime(captured / "hang.ptx", ns=(later, later))
            changes = [lsp.FileEvent((captured / "hang.ptx").as_uri(), lsp.FileChangeType.Changed)]
            client.client.workspace_did_change_watched_files(
                lsp.DidChangeWatchedFilesParams(changes)
            )
            assert await client.checked(source) == []
            assert "**proved** `hang`" in await client.hover(source, 1)
            client.client.text_document_did_close(
                lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(source.as_uri()))
            )
            assert await client.hover(source, 1) == ""

    asyncio.run(use())
    assert not (folder / "click.py.ran").exists()
    assert not (folder / "code.py.ran").exists()


def test_a_check_ends_when_the_text_changes_and_when_its_time_is_over(folder: Path) -> None:
    path = folder / "endless.py"
    path.write_text(ENDLESS)
    ran, interrupted = folder / "endless.py.ran", folder / "endless.py.interrupted"

    async def use() -> None:
        async with editor(folder, "--time-limit=10s") as client:
            client.open(path)
            await client.noted(path, "the workspace is not trusted")
            trusted = {"tilesim": {"trusted": True}}
            client.client.workspace_did_change_configuration(
                lsp.DidChangeConfigurationParams(trusted)
            )
            first = await _runs(ran)
            client.change(path, ENDLESS + "# more\n", save=False)
            await _ends(first)
            assert not interrupted.exists()
            ran.unlink()
            client.change(path, ENDLESS, save=True)
            await client.noted(path, "the time of a check is over (10 s), at endless.py")
            await _ends(await _runs(ran))
            interrupted.unlink()
            await _cancelled(client, path, ran)
            assert not interrupted.exists()

    asyncio.run(use())


async def _cancelled(client: Editor, path: Path, ran: Path) -> None:
    """The user ends a check by its progress."""
    ran.unlink()
    before = {progress.token for progress in client.progress}
    client.change(path, ENDLESS, save=True)
    process = await _runs(ran)
    await client.until(lambda: {progress.token for progress in client.progress} - before)
    (token,) = {progress.token for progress in client.progress} - before
    client.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(token))
    await _ends(process)
    await client.until(lambda: [p.value["kind"] for p in client.progress if p.token == token][1:])


async def _runs(ran: Path) -> int:
    """The process that runs an endless target, once it does."""
    async with asyncio.timeout(LONG):
        while not (ran.exists() and ran.read_text()):
            await asyncio.sleep(0.02)
    return int(ran.read_text())


async def _ends(process: int) -> None:
    async with asyncio.timeout(LONG):
        while Path(f"/proc/{process}").exists():
            await asyncio.sleep(0.02)
