"""Damaged and hostile dumps: one clear line, or what is right in them; bounded time and memory."""

from __future__ import annotations

import gzip
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilesim.autopsy import compare, core_dump
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.errors import DumpError
from tilesim.cli import main
from tilesim.cubin import disassembly

from . import malformed
from .held import held

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")

#: what is wrong in parts that the command does not need
NOT_LOOKED_AT = {
    "registers behind the end",
    "registers of 2^64 - 1 bytes",
    "registers twice",
    "global memory behind the end",
}

#: seconds of CPU time, and MiB of memory, that a dump may take
SECONDS = 2.0
MEBIBYTES = 300


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """What the command imports, and the code that most dumps here have, is paid for once."""
    CliRunner().invoke(main, ["autopsy", "none"])


@pytest.fixture(autouse=True)
def bounded(request: pytest.FixtureRequest, loaded: None) -> Iterator[None]:
    """Each dump is read in bounded time and memory; what waits for ever is ended."""
    dumps = 100 if request.node.get_closest_marker("slow") else 1

    def late(*_: object) -> None:
        raise TimeoutError("it waits, or takes too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 10 * SECONDS * dumps)
    resident = _resident()
    start = time.process_time()
    try:
        yield
        assert time.process_time() - start < SECONDS * dumps
        assert _peak() - resident < MEBIBYTES
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _resident() -> int:
    """MiB of memory; from here on the peak is counted anew, if the system lets it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0]) >> 10


def read(data: bytes, folder: Path) -> CoreDump:
    """A dump of these bytes; all of it is read."""
    path = folder / "core"
    path.write_bytes(data)
    dump = CoreDump(path)
    held(dump)
    return dump


@pytest.mark.parametrize("what", malformed.REFUSED)
def test_what_is_wrong_is_said_in_one_line(what: str, tmp_path: Path) -> None:
    make, message = malformed.REFUSED[what]
    with pytest.raises(DumpError) as error:
        read(make(), tmp_path)
    text = str(error.value)
    assert message in text
    assert text.startswith(f"{tmp_path / 'core'}: ")
    assert "\n" not in text
    assert len(text) < 300


@pytest.mark.parametrize("what", malformed.READ)
def test_what_is_right_is_read(what: str, tmp_path: Path) -> None:
    make, look, expected = malformed.READ[what]
    assert look(read(make(), tmp_path)) == expected


def one_line(text: str) -> bool:
    return text.endswith("\n") and text[:-1].isprintable()


def autopsy(data: bytes, folder: Path, *options: str) -> Result:
    """``tilesim autopsy`` of these bytes: what it says, however it ends."""
    path = folder / "core"
    path.write_bytes(data)
    result = CliRunner().invoke(main, ["autopsy", *options, str(path)])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


@pytest.mark.parametrize("what", malformed.REFUSED)
def test_the_command_refuses_a_dump(what: str, tmp_path: Path) -> None:
    make, message = malformed.REFUSED[what]
    result = autopsy(make(), tmp_path)
    if what in NOT_LOOKED_AT:
        assert result.exit_code in (0, 1, 3)
        return
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert one_line(result.stderr)


@pytest.mark.parametrize("what", malformed.READ)
def test_the_command_reads_a_dump(what: str, tmp_path: Path) -> None:
    result = autopsy(malformed.READ[what][0](), tmp_path)
    assert result.exit_code in (0, 1, 3)
    assert result.stderr == ""


@pytest.mark.parametrize("what", malformed.REFUSED_IMAGES)
def test_the_command_refuses_a_cubin(what: str, tmp_path: Path) -> None:
    make, message = malformed.REFUSED_IMAGES[what]
    result = autopsy(make(), tmp_path)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith(f"error: {tmp_path / 'core'}: the cubin of grid 1: ")
    assert one_line(result.stderr)


@pytest.mark.parametrize("what", malformed.READ_IMAGES)
def test_the_command_reads_a_cubin(what: str, tmp_path: Path) -> None:
    make, said = malformed.READ_IMAGES[what]
    result = autopsy(make(), tmp_path)
    assert result.exit_code == 3
    assert said in result.stdout
    assert result.stdout.isascii()
    assert result.stdout.replace("\n", "").isprintable()


def test_a_page_about_names_that_are_markup(tmp_path: Path) -> None:
    result = autopsy(malformed.markup(), tmp_path, "--format", "html")
    assert result.exit_code == 3
    assert "&lt;img/src=x/on&gt;" in result.stdout
    assert "&lt;b&gt;\\x07.cu:15" in result.stdout
    assert "<img" not in result.stdout
    assert "\x07" not in result.stdout


@pytest.mark.parametrize("what", malformed.LACKING)
def test_a_hang_of_which_a_part_lacks(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_SCHEDULES", 2)
    make, options, said = malformed.LACKING[what]
    result = autopsy(make(), tmp_path, *options)
    text = " ".join(result.stdout.split())
    assert [part for part in said if " ".join(part.split()) not in text] == []
    assert "bug" not in text
    assert result.exit_code == (1 if text.startswith("HANGS") else 3)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("exec sleep 60", "was stopped after 0.3 s"),
        ("exec yes", "prints more than 1 MiB"),
        ("kill -SEGV $$", "cannot read it"),
        ("echo what >&2; exit 1", "cannot read it: what"),
        ("exit 0", "finds no instruction"),
        ("head -c 100000 /dev/urandom", "finds no instruction"),
    ],
)
def test_the_disassembler_fails(
    program: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cubin may make nvdisasm hang, print without end, or fail."""
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\n{program}\n")
    tool.chmod(0o700)
    monkeypatch.setattr(disassembly, "nvdisasm", lambda: str(tool))
    monkeypatch.setattr(disassembly, "MOST_SECONDS", 0.3)
    monkeypatch.setattr(disassembly, "MOST_PRINTED", 1 << 20)
    disassembly.disassemble.cache_clear()
    result = autopsy(malformed.small().to_bytes(), tmp_path)
    disassembly.disassemble.cache_clear()
    assert result.exit_code == 2
    assert message in result.stderr
    assert one_line(result.stderr)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="No such file"):
        CoreDump(tmp_path / "core")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="it is not a file"):
        CoreDump(tmp_path)


def test_a_pipe_into_which_nothing_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "core")
    with pytest.raises(DumpError, match="it is not a file"):
        CoreDump(tmp_path / "core")


def test_a_device() -> None:
    with pytest.raises(DumpError, match="it is not a file"):
        CoreDump(Path("/dev/zero"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "core"
    path.write_bytes(b"")
    path.chmod(0)
    with pytest.raises(DumpError, match="Permission denied"):
        CoreDump(path)


def test_a_bomb_that_begins_as_a_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_dump, "MOST_UNPACKED", 8 << 20)
    with pytest.raises(DumpError, match="more than 8 MiB when it is unpacked: unpack it"):
        read(malformed.bomb(malformed.small().to_bytes(), 1000), tmp_path)


def outcomes(whole: bytes, seeds: range, folder: Path) -> list[str]:
    """What is said of dumps with flipped bytes; nothing of those that are read."""
    found = []
    for seed in seeds:
        try:
            read(malformed.flipped(whole, seed), folder)
        except DumpError as error:
            found.append(str(error))
        else:
            found.append("")
    return found


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_and_cuts(seed: int, tmp_path: Path) -> None:
    """A dump with other values in some bytes is refused, or read; nothing else happens."""
    said = outcomes(malformed.small().to_bytes(), range(25 * seed, 25 * seed + 25), tmp_path)
    assert 0 < said.count("") < len(said)
    assert all(text.isprintable() for text in said)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring", "waits", "states"])
@pytest.mark.parametrize("part", range(17))
def test_many_flipped_bytes_and_cuts(part: int, name: str, tmp_path: Path) -> None:
    whole = gzip.decompress((malformed.DUMPS / f"{name}.nvcudmp.gz").read_bytes())
    said = outcomes(whole, range(100 * part, 100 * part + 100), tmp_path)
    assert all(text.isprintable() for text in said)
