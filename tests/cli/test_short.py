"""Reports of a line each, and checks of what failed last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilesim.cli.last_failed import FILE
from tilesim.version import __version__

from .conftest import Invoke, Write

TWO = """\
import tilesim as ts


@ts.kernel(warps=1)
def right(k):
    k.sync_threads()


@ts.kernel(warps=1)
def {name}(k):
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, {count})
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
"""
CAUSE = "b[0] is initialised with 2, and 1 arrival is made on it per use"
FAILED = f"two.py:13: FAILED two.py::wrong: deadlock: {CAUSE}\n"


@pytest.fixture
def two(write: Write) -> str:
    """A file with a kernel that is proved and one that is not."""
    return write("two.py", TWO.format(name="wrong", count=2))


def test_quiet_is_a_line_for_each_failure(two: str, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", two, "zzzzzzzz.py", "-q")
    assert result.stdout == (
        f"{FAILED}ERROR zzzzzzzz.py: no such file\n3 kernels: 1 proved, 1 failed, 1 error\n"
    )
    assert tilesim_cli("check", f"{two}::right", "-q").stdout == ""
    assert tilesim_cli("check", f"{two}::wrong", "-q").stdout == FAILED


def test_quiet_goes_to_a_file(two: str, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", two, "-q", "-o", "report.txt")
    assert (result.exit_code, result.stdout) == (1, "")
    assert Path("report.txt").read_text() == f"{FAILED}2 kernels: 1 proved, 1 failed\n"


def test_quiet_says_why_a_program_is_rejected(write: Write, tilesim_cli: Invoke) -> None:
    body = "import tilesim as ts\n\n\n@ts.kernel(warps=1, target='{}')\ndef k(k):\n{}"
    late = "    with k.elected():\n        k.setmaxnreg.inc(240)\n"
    name = write("k.py", body.format("sm_90a", late))
    result = tilesim_cli("check", name, "-q")
    assert result.stdout.startswith("k.py:7: ")
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("other", [("-v",), ("--diff",), ("--format", "json")])
def test_quiet_is_about_text(other: tuple[str, ...], two: str, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", two, "-q", *other)
    assert result.exit_code == 2
    assert "--quiet shortens the report as text" in result.stderr


def test_only_what_failed_last_is_checked(two: str, write: Write, tilesim_cli: Invoke) -> None:
    command = ("check", two, "-q", "--last-failed")
    assert tilesim_cli(*command).stdout == f"{FAILED}2 kernels: 1 proved, 1 failed\n"
    assert json.loads(Path(FILE).read_text()) == {
        "schema": 1, "targets": ["two.py"], "failed": ["two.py::wrong"],
    }  # fmt: skip
    again = tilesim_cli(*command)
    assert again.stdout == FAILED
    assert "1 kernel left out, proved when last checked" in again.stderr
    write("two.py", TWO.format(name="wrong", count=1))
    assert (tilesim_cli(*command).stdout, Path(FILE).exists()) == ("", False)
    assert tilesim_cli(*command).stdout == "2 kernels: 2 proved\n"


def test_a_check_without_the_option_writes_nothing(two: str, tilesim_cli: Invoke) -> None:
    tilesim_cli("check", two)
    assert not Path(FILE).exists()


def test_other_targets_are_checked_whole(two: str, tilesim_cli: Invoke) -> None:
    tilesim_cli("check", two, "--last-failed")
    result = tilesim_cli("check", f"{two}::right", "--last-failed")
    assert result.stdout.startswith("PROVED two.py::right")


def test_a_kernel_that_is_gone_is_no_success(two: str, write: Write, tilesim_cli: Invoke) -> None:
    tilesim_cli("check", two, "--last-failed")
    write("two.py", TWO.format(name="renamed", count=2))
    result = tilesim_cli("check", two, "--last-failed")
    assert result.exit_code == 2
    assert "no kernel that failed last is left" in result.stderr
    assert tilesim_cli("check", two, "--last-failed").exit_code == 1


def test_what_is_accepted_has_not_failed(two: str, tilesim_cli: Invoke) -> None:
    """A kernel that is open has failed, unless ``--accept`` says otherwise."""
    tilesim_cli("check", two, "--deny", "any", "--last-failed")
    assert json.loads(Path(FILE).read_text())["failed"] == ["two.py::wrong"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold names of kernels; delete it to check all"),
        ('{"schema": 2}', f"of version 2 of the format; tilesim {__version__} reads version 1"),
        ('{"schema": 1, "targets": ["two.py"], "failed": [1]}', "does not hold names of kernels"),
    ],
)
def test_another_file_is_refused(text: str, says: str, two: str, tilesim_cli: Invoke) -> None:
    Path(FILE).write_text(text)
    result = tilesim_cli("check", two, "--last-failed")
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())
    assert Path(FILE).read_text() == text
