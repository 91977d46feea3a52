"""Wrong options of every command: one line that starts with ``error:``, exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilesim.cli import COMMANDS, main
from tilesim.kernels.__main__ import main as gallery

from . import kernels
from .conftest import ROOT, Invoke, Write

#: arguments -> part of the message; ``good.py`` is a kernel, ``folder`` a folder, ``text`` a file
WRONG: dict[tuple[str, ...], str] = {
    ("nonsense",): "there is no command 'nonsense' (see tilesim --help)",
    ("--nonsense",): "(see tilesim --help)",
    ("check",): "missing argument 'TARGET...' (see tilesim check --help)",
    ("check", "good.py", "--param"): "option '--param' requires an argument (see tilesim check --",
    ("check", "good.py", "--html", "folder"): "File 'folder' is a directory",
    ("check", "good.py", "--html", ""): "the name is empty",
    ("check", "good.py", "--sarif", "text/x"): "cannot write text/x: text is a file, no folder",
    ("check", "good.py", "--replay", ""): "the name is empty",
    ("check", "good.py", "--replay", "gone"): "cannot read gone: No such file or directory",
    ("check", "good.py", "--replay", "text"): "text: ",
    ("check", "good.py", "--resume", "text"): "text is not JSON",
    ("check", "good.py", "--witness-dir", ""): "the name is empty",
    ("check", "good.py", "--witness-dir", "text"): "Directory 'text' is a file",
    ("run", "good.py", "--backend", "cpu"): "'cpu' is not one of 'sim', 'gpu', 'both'",
    ("run", "good.py", "--perturb", "-1"): "-1 is not in the range 0<=x<=10000",
    ("emit",): "missing argument 'TARGET' (see tilesim emit --help)",
    ("emit", "folder"): "folder is a folder without .tile, .mir, .ptx, .cubin or .fatbin files",
    ("emit", "good.py", "more"): "got unexpected extra argument (more)",
    ("emit", "good.py", "-o", ""): "the name is empty",
    ("emit", "good.py", "-o", "text/x.cu"): "cannot write text/x.cu: text is a file, no folder",
    ("launch-template", "gone.ptx"): "gone.ptx cannot be read",
    ("launch-schema", "-o", "text/x.json"): "cannot write text/x.json: text is a file, no folder",
    ("report-schema", "-o", "text/x.json"): "cannot write text/x.json: text is a file, no folder",
    ("capture", "--", "train.py"): "missing option '-o'",
    ("capture", "-o", "text", "--", "train.py"): "Directory 'text' is a file",
    ("capture", "-o", "new", "--", "python0", "train.py"): "python0 cannot be run: No such file",
    ("capture", "-o", "new", "--", "./train"): "./train cannot be run: there is no such program",
    ("export", "good.py"): "name the format to export: --promela",
    ("export", "good.py", "--promela", "--cluster", "7"): "there is no cluster 7",
    ("trace", "good.py", "-o", ""): "the name is empty",
    ("trace", "good.py", "--limit", "0"): "0 is not in the range 1<=x<=10000000",
    ("trace", "gone.py"): "gone.py: no such file",
    ("fuzz", "good.py", "--time", "nan"): "nan is not a number (see tilesim fuzz --help)",
    ("fuzz", "good.py", "--time", "inf"): "inf is not in the range",
    ("fuzz", "good.py", "--every"): "--every is for mutants: add --mutate",
    ("sweep", "good.py", "--time-limit", "nan"): "nan is not a number (see tilesim sweep --help)",
    ("fuzz", "good.py", "--cases", "none"): "'none' is not an integer like 1 (see tilesim fuzz",
    ("check", "good.py", "--schedules", "x"): "'x' is not an integer like 64 (see",
    ("fuzz", "good.py", "--scheduler", " "): "--dask needs the address of a Dask cluster",
    ("sweep", "good.py", "--stages", ""): "--stages: kernel handshake has no parameter ''; it has",
    ("ptxas-diff", "good.py", "--jobs", "x"): "'x' is not an integer like 1",
    ("sweep", "good.py", "--trips", "parity"): "parameter parity is not a number, its default is ",
    ("conform", "x.py", "--runs", "0"): "0 is not in the range 1<=x<=100000",
    ("crosscheck", "--limit", "0"): "0 is not in the range x>=1 (see tilesim crosscheck --help)",
    ("crosscheck", "--perturb", "-1"): "-1 is not in the range 0<=x<=10000",
    ("crosscheck", "--budget", "nan"): "nan is not a number",
    ("crosscheck", "--jobs", "0"): "0 is not in the range 1<=x<=512",
    ("crosscheck", "--cache", "text"): "Directory 'text' is a file",
    ("crosscheck", "--json", "folder"): "File 'folder' is a directory",
    ("crosscheck", "--family", "fermi"): "there is no family 'fermi'; the gallery has blackwell, ",
    ("crosscheck", "--kernel", "nonsense"): "there is no such row for a Hopper GPU",
    ("crosscheck", "more"): "got unexpected extra argument (more)",
    ("autopsy",): "name a core dump, or a process with --pid P",
    ("autopsy", "text"): "text: this is not a core dump of a GPU (no ELF file)",
    ("autopsy", "gone.nvcudmp"): "gone.nvcudmp: it cannot be read: No such file or directory",
    ("autopsy", "folder"): "File 'folder' is a directory",
    ("watch",): "missing argument 'COMMAND...' (see tilesim watch --help)",
    ("watch", "--after", "soon", "--", "ls"): "'soon' is not a time like 60s or 5m",
    ("watch", "--dump-dir", "text", "--", "ls"): "Directory 'text' is a file",
    ("watch", "--", "./train"): "./train cannot be run: there is no such program",
    ("explain", "nonsense"): "there is no rule 'nonsense'",
    ("lsp", "--suggest", "soon"): "'soon' is not a time like 60s or 5m",
    ("mcp", "--time-limit", "soon"): "'soon' is not a time like 60s or 5m",
    ("demo", "more"): "got unexpected extra argument (more)",
    ("recheck", "gone.json"): "cannot read gone.json: No such file or directory",
    ("recheck", "text"): "text: this is not a certificate: JSON is malformed",
    ("show", "good.py", "-o", "folder"): "File 'folder' is a directory",
    ("doctor", "--more"): "(see tilesim doctor --help)",
}  # fmt: skip


@pytest.fixture
def files(write: Write, tmp_path: Path) -> None:
    """What the arguments name."""
    write("good.py", kernels.GOOD)
    write("text", "hello\n")
    (tmp_path / "folder").mkdir()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_options_are_one_line(tilesim_cli: Invoke, arguments: tuple[str, ...]) -> None:
    result = tilesim_cli(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    assert WRONG[arguments] in result.stderr


def test_every_command_has_a_wrong_option() -> None:
    assert {arguments[0] for arguments in WRONG} >= set(COMMANDS)


def test_the_gallery_has_the_same_errors() -> None:
    result = CliRunner().invoke(gallery, ["--nonsense"], prog_name="python -m tilesim.kernels")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no such option")
    assert result.stderr.endswith(" (see python -m tilesim.kernels --help)\n")


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "tilesim.gpu.crosscheck"]
    shown, wrong = (
        subprocess.run([*command, option], cwd=ROOT, capture_output=True, text=True, check=False)
        for option in ("--help", "--nonsense")
    )
    assert shown.stdout == CliRunner().invoke(main, ["crosscheck", "--help"]).stdout
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: no such option")
    assert wrong.stderr.endswith(" (see tilesim crosscheck --help)\n")
