"""Programs whose outcome says what happened, and the outcomes that the machine allows.

A trial leaves words in ``out``; its ``read`` makes them one short text. What the machine allows is
the texts of runs under many schedules, *hangs* where a schedule is stuck, and anything where it
calls the program undefined.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim import Builder, Program
from tilesim.arith.types import numpy_dtype
from tilesim.checker import check
from tilesim.sim.machine.simulate import simulate

Arrays = dict[str, NDArray[Any]]
Read = Callable[[NDArray[Any]], str]

#: what a launch is called that does not end
HANGS = "hangs"
#: schedules that are run where the verdict does not say that there is one result
SCHEDULES = 200
#: nanoseconds that a lane sleeps at most
LONGEST = 2000
_STUCK = frozenset({"deadlock", "register-pool"})


def words(out: NDArray[Any]) -> str:
    """The numbers one after another."""
    return " ".join(map(str, out.reshape(-1).tolist()))


@dataclass(frozen=True)
class Trial:
    """A program, the question that its outcome answers, and the rules of SEMANTICS behind it."""

    id: str
    question: str
    rules: str
    function: Callable[..., None]
    read: Read = words
    params: Mapping[str, Any] = field(default_factory=dict)
    #: schedules of the machine at most, where one takes long
    most: int = SCHEDULES

    def build(self) -> Program:
        """The program."""
        k = Builder(self.id.replace("-", "_"))
        self.function(k, **self.params)
        return k.finish()

    def outcome(self, outputs: Arrays) -> str:
        """What ``out`` says."""
        return self.read(outputs["out"])


def inputs(program: Program, seed: int = 0) -> Arrays:
    """Zeros; in ``delay`` nanoseconds, at random, many of them 0."""
    contents = {t.name: np.zeros(t.shape, numpy_dtype(t.dtype)) for t in program.tensors}
    if seed and "delay" in contents:
        rng = np.random.default_rng(seed)
        shape = contents["delay"].shape
        contents["delay"][...] = rng.integers(0, LONGEST, shape) * (rng.random(shape) < 0.5)
    return contents


@dataclass(frozen=True)
class Allowed:
    """What the machine allows: ``outcomes``, and everything if it is ``undefined`` (the rules)."""

    outcomes: frozenset[str]
    undefined: str

    def __contains__(self, outcome: object) -> bool:
        return bool(self.undefined) or outcome in self.outcomes


def allowed(trial: Trial) -> Allowed:
    """The outcomes under the timed schedule and under random ones."""
    program = trial.build()
    contents = inputs(program)
    report = check(program, inputs=contents)
    runs = [simulate(program, contents)]
    runs += (simulate(program, contents, policy="random", seed=s) for s in range(trial.most))
    found = {f.rule for f in report.findings} | {f.rule for run in runs for f in run.findings}
    ended = [run.outputs for run in runs if not {f.rule for f in run.findings} & _STUCK]
    outcomes = {trial.outcome(outputs) for outputs in ended}
    if found & _STUCK:
        outcomes.add(HANGS)
    return Allowed(frozenset(outcomes), ", ".join(sorted(found - _STUCK)))


TRIALS: list[Trial] = []
F = TypeVar("F", bound=Callable[..., None])


def trial(
    id: str, question: str, rules: str, *, read: Read = words, most: int = SCHEDULES, **params: Any
) -> Callable[[F], F]:
    """Decorator: adds a trial of the builder with ``params``."""

    def add(function: F) -> F:
        assert all(t.id != id for t in TRIALS), f"{id} is there twice"
        assert inspect.isfunction(function)
        TRIALS.append(Trial(id, question, rules, function, read, params, most))
        return function

    return add
