"""The example of docs/howto/triton.md prints what the page says.

``python -m tests.triton.test_howto`` writes the current output into it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import abridged

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "triton.md"
COMMANDS = (
    "tilesim capture -o captured -- examples/gluon_pipeline.py",
    "tilesim check captured",
    "tilesim capture -o right -- examples/gluon_pipeline.py fixed",
    "tilesim check right",
)
FILE = re.compile(r"```py\n# (\S+)\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"```shell-session\n(.*?)```", re.DOTALL)


def session(folder: Path) -> str:
    """The commands, each with what it prints."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    env = {
        **os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(folder / "cache"),
        "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    text = ""
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)], cwd=folder, env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        text += f"$ {command}\n{done.stdout}"
    return text


def test_the_kernel_is_a_part_of_the_example() -> None:
    ((name, text),) = FILE.findall(PAGE.read_text())
    assert text in (ROOT / name).read_text()


def test_the_triton_example_prints_what_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs the triton extra")
    (shown,) = BLOCK.findall(PAGE.read_text())
    assert abridged(shown, session(tmp_path)) == shown, "run python -m tests.triton.test_howto"
    assert "(deadlock)" in shown
    assert "PROVED right/pipeline.ptx::pipeline\n" in shown


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        now = session(Path(name))
    PAGE.write_text(BLOCK.sub(lambda _: f"```shell-session\n{now}```", PAGE.read_text()))
