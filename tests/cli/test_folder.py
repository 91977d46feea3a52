"""``tilesim check FOLDER``: many kernels, in several processes or on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import check as real

from . import kernels
from .conftest import ROOT, Invoke, Write
from .test_ptx import LAUNCH, PTX

ARRIVE = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];"
#: two entries, the first as in `PTX`; the second waits for an arrival that nobody makes
BODY = PTX[PTX.index(".visible") :]
TWO = PTX.replace("ARRIVE", ARRIVE) + BODY.replace(" k(", " other(").replace("ARRIVE", "")


def kernel(write: Write, name: str, text: str, launch: object) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    write(str(Path(name).with_suffix(".json")), json.dumps(launch))
    return write(name, text)


@pytest.fixture
def folder(write: Write) -> str:
    """Four kernels and two mistakes, in files and folders."""
    write("good.py", kernels.GOOD)
    for name in ("c/a.ptx", "c/sub/b.ptx"):
        kernel(write, name, PTX.replace("ARRIVE", ARRIVE), LAUNCH)
    kernel(write, "c/hangs.ptx", PTX.replace("ARRIVE", ""), LAUNCH)
    kernel(write, "c/open.ptx", PTX.replace("ARRIVE", "vadd.s32.s32.s32 %r1, %r2, %r3;"), LAUNCH)
    kernel(write, "c/other.ptx", PTX.replace("ARRIVE", ""), {**LAUNCH, "gird": [2]})
    write("c/alone.ptx", PTX)
    write("c/notes.py", "raise SystemExit('a folder is not run')")
    return "c"


def test_an_empty_name_is_not_the_working_folder(folder: str, tilesim_cli: Invoke) -> None:
    """As an unset variable of the shell makes it."""
    result = tilesim_cli("check", "")
    assert result.exit_code == 2
    assert "'' names no kernel" in result.output
    assert "good.py" not in result.output
    assert f"{folder}/a.ptx" in tilesim_cli("check", ".").output


def test_a_folder_is_all_that_is_in_it_with_a_table_at_the_end(
    folder: str, tilesim_cli: Invoke
) -> None:
    result = tilesim_cli("check", folder)
    assert result.exit_code == 2
    table = result.stdout[result.stdout.index("\nproved ") + 1 :].splitlines()
    assert [line.split()[:2] for line in table[:-1]] == [
        ["proved", "c/a.ptx::k"], ["proved", "c/sub/b.ptx::k"], ["unsupported", "c/open.ptx::k"],
        ["failed", "c/hangs.ptx::k"], ["error", "c/alone.ptx"], ["error", "c/other.ptx"],
    ]  # fmt: skip
    assert table[3].endswith("deadlock (hangs.ptx:13, hangs.ptx:10)")
    assert table[-1] == "6 kernels: 2 proved, 1 unsupported, 1 failed, 2 error"
    assert "c/other.json.gird: is not a field of this object (did you mean grid?)" in result.stdout


@pytest.mark.parametrize("form", ["json", "text"])
def test_several_processes_give_the_same_document(
    form: str, folder: str, write: Write, tilesim_cli: Invoke
) -> None:
    write("late.py", kernels.GOOD.replace("k.sync_threads()", "__import__('time').sleep(1)"))
    options = ("check", "late.py", folder, "--format", form)
    one, two = tilesim_cli(*options), tilesim_cli(*options, "-j", "2")
    assert (one.exit_code, one.stdout) == (two.exit_code, two.stdout)


@pytest.mark.parametrize(
    "options",
    [("--format", "jsonl"), ("--format", "jsonl", "-o", "lines"), ("--jsonl", "lines", "-j", "2")],
)
def test_each_kernel_has_a_line(options: tuple[str, ...], folder: str, tilesim_cli: Invoke) -> None:
    whole = json.loads(tilesim_cli("check", folder, "--format", "json").stdout)["results"]
    result = tilesim_cli("check", folder, *options)
    text = Path("lines").read_text() if "lines" in options else result.stdout
    lines = sorted(map(json.loads, text.splitlines()), key=lambda line: int(line.pop("number")))
    assert (result.exit_code, lines) == (2, whole)


def test_a_line_is_there_before_the_next_kernel_is_begun(
    folder: str, write: Write, tilesim_cli: Invoke
) -> None:
    copying = "__import__('shutil').copy('lines', 'seen')"
    write("look.py", kernels.GOOD.replace("k.sync_threads()", copying))
    tilesim_cli("check", "c/hangs.ptx", "look.py", "--jsonl", "lines")
    (seen,) = map(json.loads, Path("seen").read_text().splitlines())
    assert (seen["kernel"], seen["verdict"]) == ("c/hangs.ptx::k", "failed")


def test_without_mistakes_the_worst_verdict_decides(folder: str, tilesim_cli: Invoke) -> None:
    assert tilesim_cli("check", "c/sub").exit_code == 0
    assert tilesim_cli("check", "c/sub", "c/open.ptx").exit_code == 3
    assert tilesim_cli("check", "c/sub", "c/open.ptx", "c/hangs.ptx").exit_code == 1


def test_a_folder_without_kernels_says_what_it_could_be(write: Write, tilesim_cli: Invoke) -> None:
    Path("p").mkdir()
    write("p/k.py", kernels.GOOD)
    result = tilesim_cli("check", "p")
    assert result.exit_code == 2
    assert "Python files are run only if they are named: p/*.py" in " ".join(result.stdout.split())


# ------------------------------------------------------------------ several entries and launches


@pytest.fixture
def two(write: Write) -> str:
    """Two entries with a launch each, and a second launch of the first."""
    launches = [LAUNCH, {**LAUNCH, "entry": "other"}, {**LAUNCH, "grid": [4]}]
    return kernel(write, "two.ptx", TWO, launches)


def names(document: str) -> list[tuple[str, str]]:
    return [(r["kernel"], r["verdict"]) for r in json.loads(document)["results"]]


K1, K2 = ("two.ptx::k[launch=1]", "proved"), ("two.ptx::k[launch=2]", "proved")
OTHER = ("two.ptx::other", "failed")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("two.ptx",), [K1, OTHER, K2]),
        (("two.ptx", "--jobs", "2"), [K1, OTHER, K2]),
        (("two.ptx::k",), [K1, K2]),
        (("two.ptx", "--entry", "other"), [OTHER]),
        (("two.ptx::k[launch=2]",), [K2]),
        (("two.ptx", "--launch", "one.json", "--launch", "four.json"), [K1, K2]),
    ],
)  # fmt: skip
def test_each_entry_and_launch_is_a_kernel(
    two: str, write: Write, tilesim_cli: Invoke, arguments: tuple[str, ...],
    found: list[tuple[str, str]],
) -> None:  # fmt: skip
    write("one.json", json.dumps(LAUNCH))
    write("four.json", json.dumps({**LAUNCH, "grid": [4]}))
    assert names(tilesim_cli("check", *arguments, "--format", "json").stdout) == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two.ptx::othr",), "no launch of othr is described (did you mean other?)"),
        (("two.ptx::k[launch=3]",), "two.json: no launch of k[launch=3] is described; there is"),
        (("two.ptx::k", "--entry", "other"), "two.ptx::k is not the entry other"),
        (
            ("two.ptx", "--param", "n=3"),
            "two.ptx: kernel k has no parameter n; it takes no numbers",
        ),
        (
            ("good.py", "--launch", "two.json"),
            "--launch is for PTX files only, and good.py is not one",
        ),
        (("two.ptx", "--launch", "gone.json"), "gone.json cannot be read: No such file"),
        (("gone.ptx",), "gone.ptx: no such file"),
    ],
)
def test_wrong_names_of_entries_and_launches(
    two: str, write: Write, tilesim_cli: Invoke, arguments: tuple[str, ...], message: str
) -> None:
    write("good.py", kernels.GOOD)
    result = tilesim_cli("check", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stdout.split())


# ------------------------------------------------------------------ clusters and interrupts


class Cluster:
    """An executor that has ``left`` results to give, and then is gone."""

    def __init__(self, left: int) -> None:
        self.left = left

    def submit(self, function: Callable[[Any], Any], task: Any, /) -> Future[Any]:
        future: Future[Any] = Future()
        if self.left:
            self.left -= 1
            future.set_result(function(task))
        else:
            future.cancel()
            future.set_running_or_notify_cancel()
        return future


def test_a_cluster_that_is_lost_leaves_what_was_found(
    folder: str, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilesim.cli.campaign.opener", lambda *_: lambda: nullcontext(Cluster(2)))
    options = ("--dask", "tcp://stand-in:1", "--format", "json")
    result = tilesim_cli("check", "c/a.ptx", "c/open.ptx", "c/sub", *options)
    assert result.exit_code == 3
    assert names(result.stdout) == [("c/a.ptx::k", "proved"), ("c/open.ptx::k", "unsupported")]
    assert "stopped: the cluster has cancelled its work" in result.stderr
    whole = tilesim_cli("check", "c/a.ptx", *options)
    assert (whole.exit_code, names(whole.stdout)) == (0, [("c/a.ptx::k", "proved")])


@pytest.fixture
def slow(folder: str, write: Write) -> Iterator[subprocess.Popen[str]]:
    """A check by two processes: one kernel is done, the other takes long."""
    write("slow.py", kernels.GOOD.replace("k.sync_threads()", "__import__('time').sleep(600)"))
    command = [sys.executable, "-m", "tilesim", "check", "c/a.ptx", "slow.py", "--jobs", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "PROVED c/a.ptx::k\n"
        yield process
        process.kill()


def test_processes_end_with_the_command_that_is_killed(slow: subprocess.Popen[str]) -> None:
    slow.kill()
    slow.communicate(timeout=60)  # their standard output is that of the command


def test_an_interrupt_of_several_processes_reports_what_is_done(
    slow: subprocess.Popen[str],
) -> None:
    process = slow
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "interrupted while checking slow.py::handshake\n"


# ------------------------------------------------------------------ going on later


@pytest.mark.parametrize(
    "more",
    [
        (), ("--html", "page.html"), ("--recheck",), ("--shrink",), ("--witness-dir", "w"),
        ("--suggest=60s",), ("--shrink", "--suggest=60s", "--html", "page.html"),
    ],
)  # fmt: skip
def test_reports_of_an_interrupted_check_are_kept(
    more: tuple[str, ...], folder: str, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("c/alone.ptx").unlink()
    Path("c/other.ptx").unlink()
    options = ("check", folder, "--format", "json", "--resume", "x.json", *more)
    page = Path("page.html")

    def check(most: int) -> tuple[int, str, int]:
        """Exit code, document, and how many kernels were checked before Ctrl-C."""
        calls = iter(range(9))

        def counted(*arguments: Any, **keywords: Any) -> Any:
            if next(calls) == most:
                raise KeyboardInterrupt
            return real(*arguments, **keywords)

        with monkeypatch.context() as patch:
            patch.setattr("tilesim.cli.examine.check", counted)
            result = tilesim_cli(*options)
        return result.exit_code, result.stdout, next(calls)

    whole = check(9)
    assert whole[0] == 1
    assert whole[2] == 3  # what is unsupported is not run
    assert not Path("x.json").exists()
    pictures = page.read_text() if more[:1] == ("--html",) else ""
    assert ("<svg" in pictures) == bool(pictures)
    assert check(2)[0] == 130
    kept = json.loads(Path("x.json").read_text())["reports"]
    assert {name: one["report"]["verdict"] for name, one in kept.items()} == {
        "c/a.ptx::k": "proved", "c/hangs.ptx::k": "failed", "c/open.ptx::k": "unsupported",
    }  # fmt: skip
    assert check(9) == (1, whole[1], 1)  # these are not checked again
    assert not Path("x.json").exists()
    assert not pictures or page.read_text() == pictures
    check(1)
    Path("c/a.ptx").write_text(PTX.replace("ARRIVE", ""))
    assert [verdict for _, verdict in names(check(9)[1])].count("failed") == 2


def test_a_proof_is_kept_with_its_certificate(
    folder: str, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = ("check", "c/a.ptx", "--certificate", "k.cert")
    assert tilesim_cli(*alone).exit_code == 0
    whole = Path("k.cert").read_bytes()

    def interrupted(target: Any, *rest: Any, **more: Any) -> Any:
        if Path("x.json").exists():
            raise KeyboardInterrupt
        return real(target, *rest, **more)

    monkeypatch.setattr("tilesim.cli.examine.check", interrupted)
    assert tilesim_cli("check", folder, "--recheck", "--resume", "x.json").exit_code == 130
    kept = json.loads(Path("x.json").read_text())
    for altered, code in ((None, 0), ("{}", 130)):
        Path("k.cert").write_text("")
        if altered is not None:
            kept["reports"]["c/a.ptx::k"]["report"]["certificate"] = altered
        Path("x.json").write_text(json.dumps(kept))
        assert tilesim_cli(*alone, "--resume", "x.json").exit_code == code  # 0: it is not checked
        assert (Path("k.cert").read_bytes() == whole) == (code == 0)


def test_reports_on_all_values_of_a_parameter_are_kept(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = {"kind": "scalar", "name": "n", "type": "u32", "value": 3}
    launch = json.loads(json.dumps(LAUNCH))
    launch["params"].append(number)
    text = PTX.replace(".u64 a", ".u64 a, .param .u32 n")
    kernel(write, "c/a.ptx", text.replace("ARRIVE", ARRIVE), launch)
    kernel(write, "c/b.ptx", text.replace("ARRIVE", ""), launch)
    options = ("check", "c", "--for-all", "n=1..9", "--format", "json")
    whole = tilesim_cli(*options)
    assert [one["verdict"] for one in json.loads(whole.stdout)["results"]] == ["proved", "failed"]
    assert "every n in 1..9" in whole.stdout

    def interrupted(target: Any, *rest: Any, **more: Any) -> Any:
        if Path("x.json").exists():
            raise KeyboardInterrupt
        return real(target, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr("tilesim.cli.examine.check", interrupted)
        assert tilesim_cli(*options, "--resume", "x.json").exit_code == 130
    kept = json.loads(Path("x.json").read_text())["reports"]
    assert kept["c/a.ptx::k"]["report"]["for_all"]["proved"]
    again = tilesim_cli(*options, "--resume", "x.json")
    assert again.stdout == whole.stdout
    other = tilesim_cli("check", "c/a.ptx", "--for-all", "n=1..5", "--resume", "x.json")
    assert "every n in 1..5" in other.stdout
