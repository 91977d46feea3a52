"""Which ptxas compiles a text: by a script that stands in for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tilesim.cubin import ptxas as module
from tilesim.cubin.errors import CubinError
from tilesim.cubin.ptxas import compile_ptx, compiled, installed

from .compiled import image

SOURCE = 'extern "C" __global__ void k(int *p) { *p = 1; }'


def stand_in(path: Path, version: str, does: str) -> str:
    """A ptxas of a version: what it does with ``source``, ``made`` and the arguments."""
    path.mkdir()
    (path / "made").write_bytes(image(SOURCE).data)
    program = path / "ptxas"
    program.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys, time\n"
        f"if sys.argv[1] == '--version': print('release 13, V{version}'); sys.exit()\n"
        f"source, made, ready = sys.argv[-3], sys.argv[-1], '{path}/made'\n"
        f"{does}\n"
    )
    program.chmod(0o755)
    return str(program)


REFUSES = "sys.exit('ptxas x.ptx, line 1; fatal   : Unsupported .version 9.5; current is 9.0')"
COMPILES = "shutil.copy(ready, made)"


def test_of_several_the_first_that_takes_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = stand_in(tmp_path / "old", "13.0.88", REFUSES)
    new = stand_in(tmp_path / "new", "13.5.37", COMPILES)
    os.symlink(new, tmp_path / "again")
    places = [str(tmp_path / "none"), old, new, str(tmp_path / "again")]
    monkeypatch.setattr(module, "_places", lambda: iter(places))
    assert [(one.path, one.version) for one in installed()] == [(old, "13.0.88"), (new, "13.5.37")]
    made, by = compiled("several", "k.ptx", "sm_90a")
    assert (made.data, by.version) == (image(SOURCE).data, "13.5.37")
    with pytest.raises(CubinError, match=r"^k\.ptx: ptxas 13\.0\.88 refuses the PTX: Unsupported"):
        compiled("several", "k.ptx", "sm_90a", given=old)
    monkeypatch.setattr(module, "_places", lambda: iter(()))
    with pytest.raises(CubinError, match="there is no ptxas"):
        list(installed())


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("sys.exit(3)", "refuses the PTX: exit code 3"),
        ("pass", "refuses the PTX: exit code 0"),
        ("print('x' * (1 << 20)); sys.exit('ptxas fatal   : late')", "exit code 1"),
        ("time.sleep(60)", "took longer than 1 s"),
        ("open(made, 'wb').write(b'no ELF')", "no ELF file"),
    ],
)
def test_what_goes_wrong_is_one_line(
    does: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = installed(stand_in(tmp_path / "one", "13.0.88", does))
    if "sleep" in does:
        monkeypatch.setattr(module, "MOST_SECONDS", 1)
    with pytest.raises(CubinError, match=says) as error:
        compile_ptx(one, does, "k.ptx", "sm_90a")
    assert "\n" not in str(error.value)


def test_what_is_no_ptxas() -> None:
    for path in ("/bin/true", "/none"):
        with pytest.raises(CubinError, match="cannot be run"):
            list(installed(path))
