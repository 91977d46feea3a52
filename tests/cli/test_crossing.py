"""What goes from one process to another is data; a kernel of which that fails is one row."""

from __future__ import annotations

import ast
import json
import pickle
import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from inspect import getsource
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from tilesim.checker.report import Values
from tilesim.cli.examine import Examination
from tilesim.cli.options import Progress
from tilesim.cli.session import Done, Task, check_one
from tilesim.fuzz.cases import Case, Outcome
from tilesim.fuzz.sweep import Every, EveryResult
from tilesim.loader import Given, load
from tilesim.repair import Repair
from tilesim.report.result import Checked
from tilesim.sim.schedulers.sampling import Batch

from . import kernels
from .conftest import Invoke, Write
from .test_ptx import LAUNCH, PTX

#: what is data by itself; an object of these is not looked into
PLAIN = {int, str, bool, float, bytes, range, type(None), object, timedelta, Path, Progress}
#: what has a type that is no data, and None in what is sent
NONE_IN_WHAT_IS_SENT = {(Task, "target"), (Repair, "made")}


def for_types(module: str) -> dict[str, Any]:
    """What a module imports for its types only."""
    lazy = [s for s in ast.parse(getsource(import_module(module))).body if isinstance(s, ast.If)]
    uses = [use for branch in lazy for use in branch.body if isinstance(use, ast.ImportFrom)]
    return {
        name.name: getattr(import_module(use.module or ""), name.name)
        for use in uses
        for name in use.names
    }


def undata(kind: Any, seen: set[Any], place: str) -> list[str]:
    """The places at which a type is none of data: functions, programs, machines."""
    if kind in PLAIN or get_origin(kind) is Literal or kind is ...:
        return []
    if get_origin(kind) in (Union, types.UnionType, tuple, list, dict, frozenset, Mapping):
        return [p for part in get_args(kind) for p in undata(part, seen, place)]
    if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        return [p for part in get_args(kind) for p in undata(part, seen, place)]
    if kind is Any:
        # JSON: witnesses and frontiers, which are written to files
        return [] if place.rpartition(".")[2] in ("witness", "frontier") else [f"{place}: Any"]
    if not is_dataclass(kind):
        return [f"{place}: {kind}"]
    if kind in seen:
        return []
    seen.add(kind)
    hints = get_type_hints(kind, localns=for_types(kind.__module__))
    return [
        found
        for field in fields(kind)
        if (kind, field.name) not in NONE_IN_WHAT_IS_SENT
        for found in undata(hints[field.name], seen, f"{place}.{field.name}")
    ]


@pytest.mark.parametrize("kind", [Task, Done, Case, Outcome, Every, EveryResult, Batch])
def test_what_crosses_has_types_of_data(kind: type) -> None:
    assert undata(kind, set(), kind.__name__) == []


def examination(*, pictures: bool = False, **wanted: Any) -> Examination:
    usual: dict[str, Any] = {
        "strict": "practice", "schedules": 8, "budget": 2000, "time_limit": None,
        "max_schedules": 50, "preemptions": None, "jobs": 1, "seed": 0, "shrink": False,
        "witness_dir": None,
    }  # fmt: skip
    return Examination(pictures, **{**usual, **wanted})


@pytest.mark.parametrize("text", ["BAD", "RARE", "OPEN", "UNSUPPORTED", "FOUR_CTAS", "GOOD"])
@pytest.mark.parametrize("wanted", ["plain", "pictures", "repairs", "every value"])
def test_whatever_a_check_says_is_read_by_others(text: str, wanted: str, write: Write) -> None:
    name = write("k.py", getattr(kernels, text))
    every = {"for_all": {"rounds": Values()}} if text in ("GOOD", "BAD") else {}
    asked: dict[str, dict[str, Any]] = {
        "plain": {}, "pictures": {"pictures": True}, "every value": every,
        "repairs": {"suggest": timedelta(seconds=2)},
    }  # fmt: skip
    options = asked[wanted]
    for target in load(name):
        done = check_one(
            Task(
                1,
                target.id,
                Given(),
                examination(**options),
                target,
                None,
                debug=False,
                timed=False,
            )
        )
        assert pickle.loads(pickle.dumps(done)) == done
        assert isinstance(done.result, Checked) or text == "UNSUPPORTED"


def test_the_machine_does_not_come_along(write: Write) -> None:
    """A recording of a schedule that fails had it: "Can't pickle local object", or megabytes."""
    (target,) = load(write("rare.py", kernels.RARE))
    done = check_one(
        Task(1, target.id, Given(), examination(), target, None, debug=False, timed=False)
    )
    assert isinstance(done.result, Checked)
    assert done.result.recording is not None
    assert len(pickle.dumps(done)) < 100_000


KILLED = """
import os, signal
import tilesim as ts

@ts.kernel(warps=1)
def killed(k):
    os.kill(os.getpid(), signal.SIGKILL)

@ts.kernel(warps=1)
def ended(k):
    os._exit(3)
"""


def prepared(write: Write) -> tuple[str, ...]:
    arrive = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];"
    for name in ("a", "b"):
        write(f"{name}.json", json.dumps(LAUNCH))
        write(f"{name}.ptx", PTX.replace("ARRIVE", arrive if name == "a" else ""))
    write("rare.py", kernels.RARE)
    write("killed.py", KILLED)
    return "a.ptx", "b.ptx", "rare.py", "killed.py"


def test_a_process_that_is_killed_costs_one_row(write: Write, tilesim_cli: Invoke) -> None:
    targets = prepared(write)
    options = ("--jobs", "2", "--format", "json", "--html", "o.html", "--resume", "r.json")
    result = tilesim_cli("check", *targets, *options)
    rows = {row["kernel"]: row for row in json.loads(result.stdout)["results"]}
    assert result.exit_code == 70
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "a.ptx::k": "proved", "b.ptx::k": "failed", "rare.py::rare": "failed",
        "killed.py::killed": "error", "killed.py::ended": "error",
    }  # fmt: skip
    assert "the worker process dies on it" in rows["killed.py::killed"]["error"]
    assert rows["killed.py::ended"]["error"] == "killed.py:11: building ended raises SystemExit: 3"
    assert "Barriers: arrivals and waits" in Path("o.html").read_text()


def test_what_cannot_be_sent_back_costs_one_row(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the error is one of this process, which cannot read it."""
    a, b, *_ = prepared(write)
    monkeypatch.setattr("tilesim.cli.session.check_one", as_function)
    result = tilesim_cli("check", a, b, "--jobs", "2")
    text = re.sub(r"\s+", " ", result.output)
    assert result.exit_code == 70
    assert "ERROR a.ptx::k not checked: the result cannot be sent" in text
    assert "FAILED b.ptx::k" in text


def as_function(task: Task) -> Done:
    """What `check_one` says, which for one kernel has a function in it."""
    done = check_one(task)
    if task.name.startswith("a"):
        object.__setattr__(done, "number", lambda: None)
    return done


OWN = """
import enum
import tilesim as ts

class Mode(enum.Enum):
    ONE = 1
    TWO = 2

@ts.kernel(warps=2)
def own(k, *, trips=2, mode=Mode.ONE):
    with k.loop(trips):
        k.sync_threads()
"""


def test_a_default_that_only_the_file_knows_is_left_to_it(
    write: Write, tilesim_cli: Invoke
) -> None:
    name = write("own.py", OWN)
    one = tilesim_cli("sweep", f"{name}::own", "--param", "trips=1,2", "--jobs", "2")
    assert one.exit_code == 0, one.output
    assert one.output.count("proved") >= 2


def test_what_a_kernel_raises_for_a_sweep_is_no_bug_of_ours(
    write: Write, tilesim_cli: Invoke
) -> None:
    name = write("own.py", OWN.replace("k.sync_threads()", "k.no_such_thing()"))
    result = tilesim_cli("sweep", f"{name}::own", "--param", "trips=1,2")
    assert result.exit_code == 2
    assert "building own raises AttributeError" in result.output
    assert "internal error" not in result.output
