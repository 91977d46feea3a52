"""Bad input of every kind: one clear message with file and line, exit code 2, no traceback."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from . import kernels
from .conftest import Invoke, Write

TENSOR = "A = k.tensor('A', ts.bf16, (512, 512))"
BARRIER = "b = k.mbarriers('b')"


class Bad(NamedTuple):
    """A kernel body whose line marked ``# here`` is refused, with part of the message."""

    body: str
    message: str
    setup: str = ""


BAD = {
    "unaligned TMA box": Bad("k.tensor_map(A, (64, 20))  # here", "40 bytes, not a mult", TENSOR),
    "300-element box": Bad(
        "k.tensor_map(A, (300, 64), swizzle=128)  # here",
        "box extent 300 is outside 1..256",
        TENSOR,
    ),
    "8 KB swizzle atom that does not fit": Bad(
        "k.shared('s', ts.bf16, (64, 4096), swizzle=128)  # here",
        "8192-byte rows do not fit a 128-byte swizzle",
    ),
    "tensor in the middle of a swizzle atom": Bad(
        "k.shared('s', ts.bf16, (64, 64), swizzle=128, offset=512, align=128)  # here",
        "repeats every 1024 bytes",
    ),
    "barrier count of 0": Bad("k.mbarrier.init(b, 0)  # here", "count", BARRIER),
    "barrier count of 2^20": Bad("k.mbarrier.init(b, 1 << 20)  # here", "count", BARRIER),
    "named barrier 16": Bad("k.bar.sync(16)  # here", "16"),
    "shared memory over 227 KB": Bad(
        "k.shared('s', ts.f32, (64, 1024))  # here", "232448", "k.sync_threads()"
    ),
    "role that names a warp twice": Bad("with k.role('r', [0, 1, 1]):  # here\n    k.sync_warp()",
                                        "names warp 1 twice"),
    "wait on an unknown barrier": Bad(
        "k.mbarrier.wait(other, 0)  # here",
        "unknown barrier other",
        "other = ts.Builder('elsewhere').mbarriers('other')",
    ),
    "wait on what is no barrier": Bad("k.mbarrier.wait('full', 0)  # here", "is not an mbarrier"),
    "unknown target": Bad("k.launch(target='sm_91')  # here", "there is no target 'sm_91'"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_rejected_program_names_file_and_line(write: Write, tilesim_cli: Invoke, bad: Bad) -> None:
    source = kernels.rejected(bad.body, setup=bad.setup)
    result = tilesim_cli("check", write("bad.py", source))
    assert result.exit_code == 2, result.output
    line = next(n for n, row in enumerate(source.splitlines(), 1) if "# here" in row)
    flat = re.sub(r"\s+", " ", result.stdout)
    assert flat.startswith("REJECTED bad.py::bad (")
    found = re.findall(r"bad\.py:(\d+): (.*?) \[([a-z0-9-]+)\]", flat)
    assert {int(number) for number, _, _ in found} == {line}, result.stdout
    assert bad.message in found[0][1]
    assert_no_traceback(result.output)


def test_every_problem_of_a_program_is_listed(write: Write, tilesim_cli: Invoke) -> None:
    setup = f"{TENSOR}\nk.tensor_map(A, (300, 64), name='m1')"
    source = kernels.rejected("k.tensor_map(A, (64, 400), name='m2')", setup=setup)
    result = tilesim_cli("check", write("bad.py", source))
    assert "bad.py:7:" in result.stdout
    assert "bad.py:8:" in result.stdout


FILES = {
    "raises on import": (
        "import tilesim as ts\n\n\ndef helper():\n    return 1 / 0\n\n\nhelper()\n",
        "bad.py:5: loading bad.py raises ZeroDivisionError: division by zero",
    ),
    "raises in a library": (
        "import json\n\njson.loads('{')\n",
        "bad.py:3: loading bad.py raises JSONDecodeError: Expecting property name",
    ),
    "imports what is not there": (
        "import no_such_module_at_all\n",
        "bad.py:1: loading bad.py raises ModuleNotFoundError: No module named 'no_such_module_at_",
    ),
    "exits on import": ("raise SystemExit(3)\n", "bad.py:1: loading bad.py raises SystemExit: 3"),
    "ends the process": (
        "import os\n\nif not os.fork():\n    os._exit(1)\nos.wait()\nos._exit(0)\n",
        "bad.py:6: loading bad.py raises SystemExit: 0",
    ),
    "raises what is no error": (
        "raise BaseException('x')\n", "bad.py:1: loading bad.py raises BaseException: x"
    ),
    "ends a generator": ("raise GeneratorExit\n", "bad.py:1: loading bad.py raises GeneratorExit"),
    "raises what cannot be shown": (
        "class E(Exception):\n    def __str__(self):\n        raise self\n\n\nraise E\n",
        "bad.py:6: loading bad.py raises E",
    ),
    "does not parse": ("x = 1\ndef f(:\n", "bad.py:2: SyntaxError: invalid syntax"),
    "is not UTF-8 source": ("x = '\udcff'\n", "SyntaxError"),
    "defines no kernel": ("x = 1\n", "bad.py defines no kernel"),
    "has a parameter without a default": (
        "import tilesim as ts\n\n\n@ts.kernel()\ndef f(k, n):\n    pass\n",
        "bad.py:4: loading bad.py: f: parameter n needs a default value",
    ),
    "raises while it is built": (
        "import tilesim as ts\n\n\n@ts.kernel()\ndef f(k):\n    k.nonsense()\n",
        "bad.py:6: building f raises AttributeError: Builder has no 'nonsense'",
    ),
    "recurses for ever": (
        "import tilesim as ts\n\n\n@ts.kernel()\ndef f(k):\n    f.function(k)\n",
        "bad.py:6: building f raises RecursionError",
    ),
    "has malformed CASES": ("CASES = (1,)\n", "bad.py: 1 in CASES has no kernel and params"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FILES.values(), ids=FILES)
def test_file_that_cannot_be_loaded(
    write: Write, tilesim_cli: Invoke, text: str, message: str
) -> None:
    write("bad.py", "")
    with open("bad.py", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    result = tilesim_cli("check", "bad.py")
    assert result.exit_code == 2, result.output
    assert message in re.sub(r"\s+", " ", result.stdout)
    assert_no_traceback(result.output)


def test_an_error_of_any_length_is_cut(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", write("bad.py", "raise ValueError(10_000_000 * 'x')\n"))
    assert result.exit_code == 2
    assert "bad.py:1: loading bad.py raises ValueError:" in result.stdout
    assert len(result.stdout) < 3000


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_python_that_is_no_file_of_its_size_is_not_read(
    write: Write, tilesim_cli: Invoke, tmp_path: Path, kind: str
) -> None:
    write("good.py", kernels.GOOD)
    path = tmp_path / "bad.py"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            with path.open("wb") as file:
                file.truncate(1 << 40)
    result = tilesim_cli("check", "bad.py")
    assert result.exit_code == 2
    why = "it is larger than 8 MiB" if kind == "large" else "it is not a regular file"
    assert f"bad.py cannot be read: {why}" in result.output


@pytest.mark.parametrize("when", ["before", "while it is loaded"])
def test_a_working_folder_that_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke, when: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if when == "before":
        folder.rmdir()
        text = kernels.GOOD
    else:
        text = f"import os\n\nos.rmdir({str(folder)!r})\n{kernels.GOOD}"
    (tmp_path / "bad.py").write_text(text)
    result = tilesim_cli("check", str(tmp_path / "bad.py"))
    assert result.exit_code == 2
    assert result.stderr == "error: the working folder has been deleted; use another\n"


def test_program_rejected_while_the_file_is_loaded(write: Write, tilesim_cli: Invoke) -> None:
    text = kernels.rejected("k.launch(target='sm_91')  # here") + "\n\nprogram = bad.build()\n"
    result = tilesim_cli("check", write("bad.py", text))
    assert result.exit_code == 2
    assert "bad.py:6: there is no target 'sm_91' (did you mean sm_90" in result.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing.py", "missing.py: no such file"),
        ("goood.py", "goood.py: no such file (did you mean good.py?)"),
        ("no/such/folder/k.py", "no/such/folder/k.py: no such file"),
        ("notes.txt", "notes.txt is not a .py, .tile, .mir, .ptx file, a program or a cubin"),
        (
            ".",
            ". is a folder without .tile, .mir, .ptx, .cubin or .fatbin files; Python files are "
            "run only if they are named: ./*.py",
        ),
        ("no.such.module::k", "there is no file and no module no.such.module"),
        ("not-a-module", "there is no file and no module not-a-module"),
        ("good.py::handshak", "good.py has no kernel 'handshak' (did you mean handshake?); it has"),
        ("tilesim.kernels.hopper.copy::vectr", "(did you mean vector?); it has vector, tensor"),
        ("tilesim.lib.pipeline", "tilesim.lib.pipeline defines no kernel"),
        ("good.py::", "names no kernel"),
        ("::handshake", "names no kernel"),
        ("", "names no kernel"),
        ("good.py::handshake[rounds]", "'rounds' in the brackets is not NAME=VALUE"),
        ("good.py::handshake[round=1]", "has no parameter 'round' (did you mean rounds?); it has"),
        (
            "good.py::handshake[rounds=two]",
            "parameter rounds of handshake: 'two' is not of type int",
        ),
        (
            "good.py::handshake[parity=maybe]",
            "parameter parity of handshake: 'maybe' is not true or false",
        ),
    ],
)
def test_target_that_does_not_exist(
    write: Write, tilesim_cli: Invoke, target: str, message: str
) -> None:
    write("good.py", kernels.GOOD)
    write("notes.txt", "")
    result = tilesim_cli("check", target)
    assert result.exit_code == 2, result.output
    assert message in re.sub(r"\s+", " ", result.stdout)
    assert_no_traceback(result.output)


def test_malformed_tile_file_names_file_and_line(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", write("bad.tile", "kernel ((\nnonsense\n"))
    assert result.exit_code == 2, result.output
    assert re.search(r"bad\.tile:\d+", result.stdout), result.stdout
    assert_no_traceback(result.output)


def assert_no_traceback(output: str) -> None:
    assert "Traceback" not in output
    assert "internal error" not in output
