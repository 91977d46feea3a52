"""Witnesses: a failing schedule as a small JSON object that replays, and its shortening.

A witness holds the picks of the schedule per cluster (see `ReplayChooser`); picks beyond the end
are 0, the agent that has been ready longest. Loading one runs no code and trusts nothing in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import simpy
from numpy.typing import NDArray

from tilesim.dsl.kernel import Kernel, built, public
from tilesim.errors import UsageError
from tilesim.findings.finding import Finding
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.records import dataclass, field, replace
from tilesim.sim.machine.events import Trace
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.schedule import (
    Answers,
    Asker,
    ChoiceEnvironment,
    Order,
    ReplayChooser,
    ResidentEnvironment,
    TimedEnvironment,
)
from tilesim.sim.machine.simulate import Run, Simulation, kernel_of
from tilesim.sim.observers import certificate

if TYPE_CHECKING:
    from tilesim.sim.observers.timeline import Recording

SCHEMA = 2
WitnessPolicy = Literal["timed", "replay", "resident"]
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
#: what a witness may hold at most
MAX_TEXT = 16 * 1024 * 1024
_MAX_CLUSTERS = 1024
#: replays and instructions that shortening may cost
_SHORTENING_RUNS = 80
_SHORTENING_INSTRUCTIONS = 40_000


@dataclass(frozen=True)
class Witness:
    """A schedule of one kernel: which clusters ran, under which policy, with which picks.

    ``program`` is the fingerprint of the MIR that it was recorded on: it holds for no
    other. ``params`` are the parameters that were made smaller to find it. ``answers``:
    what clusterlaunchcontrol answers, if not what it does by default. ``first``: the cluster that
    is resident first, if only one is at a time. ``order``: the warps that draw from counters, one
    after the other, if not as they come. ``apart``: a warp of each CTA, and the mask of lanes of it
    that go their own way. ``first_lane``: ``elect.sync`` chooses the first lane also at ``ptx``.
    """

    kernel: str
    strict: Strict
    policy: WitnessPolicy
    clusters: tuple[int, ...]
    choices: Mapping[int, tuple[int, ...]]
    program: str
    params: Mapping[str, int] = field(default_factory=dict)
    answers: Answers | None = None
    first: int = 0
    order: tuple[int, ...] | None = None
    apart: tuple[int, int] | None = None
    first_lane: bool = False

    @property
    def drawing(self) -> Order | None:
        """The order in which warps draw from counters."""
        return None if self.order is None else Order(self.order)

    @property
    def altered(self) -> bool:
        """Whether lanes go apart, or another one is elected, than on the machine by itself."""
        return self.apart is not None or self.first_lane

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "strict": self.strict,
            "policy": self.policy,
            "clusters": list(self.clusters),
            "choices": {str(c): list(picks) for c, picks in sorted(self.choices.items())},
            "program": self.program,
        }
        if self.params:
            data["params"] = dict(self.params)
        if self.first:
            data["first"] = self.first
        if self.answers is not None:
            data["answers"] = [
                [cluster, *asker, *cancelled]
                for cluster, by in sorted(self.answers.items())
                for asker, cancelled in sorted(by.items())
            ]
        if self.order is not None:
            data["order"] = list(self.order)
        if self.apart is not None:
            data["apart"] = list(self.apart)
        if self.first_lane:
            data["first_lane"] = True
        return data

    @staticmethod
    def from_dict(data: object) -> Witness:
        """The witness in a JSON object.

        Raises:
            UsageError: it is malformed; the message says where.
        """
        from tilesim.formats import require

        if not isinstance(data, Mapping):
            raise UsageError("this is not a tilesim witness")
        require(data.get("schema"), SCHEMA, "a tilesim witness", "check the kernel again")
        kernel, strict, policy = data.get("kernel"), data.get("strict"), data.get("policy")
        if not isinstance(kernel, str):
            raise UsageError("the witness names no kernel")
        if strict not in get_args(Strict):
            raise UsageError(f"the witness's strictness {strict!r} is not ptx or practice")
        if policy not in get_args(WitnessPolicy):
            raise UsageError(
                f"the witness's policy {policy!r} is not {', '.join(get_args(WitnessPolicy))}"
            )
        clusters = _numbers(data.get("clusters"), "clusters")
        if not 1 <= len(clusters) <= _MAX_CLUSTERS:
            raise UsageError(f"the witness runs {len(clusters)} clusters, not 1..{_MAX_CLUSTERS}")
        recorded = data.get("choices")
        if not isinstance(recorded, Mapping):
            raise UsageError("the witness's choices are not an object of lists")
        choices = {}
        for key, picks in recorded.items():
            if not isinstance(key, str) or not key.isdecimal() or len(key) > 9:
                raise UsageError(
                    f"the witness has choices for {key!r}, which is not a cluster number"
                )
            choices[int(key)] = _numbers(picks, f"choices of cluster {key}")
        recorded_on = data.get("program")
        if not isinstance(recorded_on, str) or not _FINGERPRINT.fullmatch(recorded_on):
            raise UsageError("the witness has no fingerprint of the program it was recorded on")
        params = data.get("params", {})
        if not isinstance(params, Mapping) or not all(
            isinstance(name, str) and type(value) is int for name, value in params.items()
        ):
            raise UsageError("the witness's params are not integers by name")
        return Witness(
            kernel,
            cast(Strict, strict),
            cast(WitnessPolicy, policy),
            clusters,
            choices,
            recorded_on,
            dict(params),
            _answers(data.get("answers")),
            _numbers([data.get("first", 0)], "first")[0],
            None if data.get("order") is None else _numbers(data["order"], "order"),
            _apart(data.get("apart")),
            data.get("first_lane") is True,
        )


def _apart(value: object) -> tuple[int, int] | None:
    """The lanes that go their own way: the number of a warp, and a mask."""
    if value is None:
        return None
    warp, *masks = (*_numbers(value, "apart"), 0)
    if len(masks) != 2:
        raise UsageError("the witness's lanes apart are not a warp and a mask")
    return warp, masks[0]


def _answers(value: object) -> Answers | None:
    """The answers of launch control: lists of a cluster, a rank, a warp, and clusters cancelled."""
    if value is None:
        return None
    items = [_numbers(item, "answers") for item in value] if isinstance(value, list) else [()]
    if any(len(item) < 3 for item in items):
        raise UsageError("the witness's answers are not lists of a cluster, a rank, a warp, ...")
    result: dict[int, dict[Asker, tuple[int, ...]]] = {}
    for cluster, rank, warp, *cancelled in items:
        result.setdefault(cluster, {})[rank, warp] = tuple(cancelled)
    return result


def _numbers(value: object, what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(v) is int and 0 <= v < 1 << 31 for v in value):
        raise UsageError(f"the witness's {what} is not a list of non-negative integers")
    return tuple(value)


def load(text: str) -> Witness:
    """Parses the text of a witness file.

    Raises:
        UsageError: it is not JSON, too large, or not a witness.
    """
    if len(text) > MAX_TEXT:
        raise UsageError(f"the witness is larger than {MAX_TEXT} bytes")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the witness is not JSON: {error}") from None
    return Witness.from_dict(data)


@public
def replay(
    program: Program | Mir | Kernel,
    witness: Witness | Mapping[str, Any],
    inputs: Mapping[str, NDArray[Any]] | None = None,
) -> Run:
    """Repeats the schedule of a witness and returns the run.

    Raises:
        UsageError: the witness is malformed, or belongs to another kernel.
    """
    from tilesim.mistakes.diagnose import explained  # what only a failure needs

    parsed, simulation = _fitting(built(program), witness)
    run = repeat(simulation, parsed, inputs or {})
    if parsed.policy == "timed":
        run = certificate.annotate(run)
    again = partial(repeat, simulation, parsed, inputs or {})
    return replace(run, findings=explained(run.findings, again, run.stats.instructions))


def timed(program: Program | Mir, strict: Strict, clusters: int) -> Witness:
    """The witness of the timed schedule of the first clusters, of which a kernel may have fewer."""
    from tilesim.ir.text.mir import fingerprint

    simulation = Simulation(program, numbers=False, strict=strict)
    every = tuple(range(min(clusters, simulation.groups)))
    own = fingerprint(simulation.code.mir)
    return Witness(kernel_of(program).name, strict, "timed", every, {}, own)


def compute(
    program: Program | Mir, witness: Witness | Mapping[str, Any], inputs: Mapping[str, NDArray[Any]]
) -> Run:
    """Repeats the schedule of a witness and computes its numbers: `Run.outputs` has all tensors.

    Raises:
        UsageError: the witness is malformed, or belongs to another kernel.
    """
    parsed, simulation = _fitting(program, witness)
    return repeat(simulation.with_numbers(), parsed, inputs)


def retrace(
    program: Program | Mir,
    witness: Witness | Mapping[str, Any],
    inputs: Mapping[str, NDArray[Any]] | None = None,
    *,
    limit: int | None = None,
) -> Recording:
    """Repeats the schedule of a witness and records it.

    Raises:
        UsageError: the witness is malformed, or belongs to another kernel.
    """
    from tilesim.sim.observers.timeline import LIMIT, Recorder, Recording

    parsed, simulation = _fitting(program, witness)
    recorders: list[Recorder] = []

    def trace(env: simpy.Environment) -> Trace:
        recorders.append(Recorder(env, LIMIT if limit is None else limit))
        return recorders[-1]

    run = repeat(simulation, parsed, inputs or {}, trace)
    return Recording.of(run, (recorder.timeline() for recorder in recorders))


def ends(
    program: Program | Mir,
    witness: Witness | Mapping[str, Any],
    *,
    deadline: float | None = None,
) -> tuple[Machine, ...]:
    """Repeats the schedule of a witness; the machines as it leaves them, by clusters: what each
    warp still waits for.

    Raises:
        UsageError: the witness is malformed, or belongs to another kernel.
        Interrupted: by Ctrl-C, or at the ``deadline`` (of `time.monotonic`).
    """
    parsed, simulation = _fitting(program, witness)
    simulation.skips = True  # what repeats does not change how it ends
    simulation.set_options(deadline=deadline)
    machines: list[Machine] = []
    simulation.watches = machines.append
    repeat(simulation, parsed, {})
    return tuple(machines)


def _fitting(
    program: Program | Mir, witness: Witness | Mapping[str, Any]
) -> tuple[Witness, Simulation]:
    """The witness, parsed, and the program it is one of, compiled."""
    parsed = witness if isinstance(witness, Witness) else Witness.from_dict(witness)
    kernel = kernel_of(program)
    if parsed.kernel != kernel.name:
        raise UsageError(f"the witness is one of kernel {parsed.kernel}, not of {kernel.name}")
    simulation = Simulation(program, numbers=False, strict=parsed.strict)
    from tilesim.ir.text.mir import fingerprint

    own = fingerprint(simulation.code.mir)
    if parsed.program != own:
        raise UsageError(
            f"the witness was recorded on another program than this {kernel.name}: its "
            f"fingerprint is {parsed.program}, this one's {own}. A schedule means nothing "
            "on another program: check that one by itself"
        )
    count = simulation.groups
    every = kernel.ctas // kernel.cluster_size
    cancelled = (c for by in (parsed.answers or {}).values() for ids in by.values() for c in ids)
    if (
        any(c >= count for c in (*parsed.clusters, *parsed.choices))
        or max(parsed.first, *cancelled, 0) >= every
    ):
        raise UsageError(f"the witness runs clusters the kernel does not have; it has {count}")
    if parsed.first_lane:
        simulation = simulation.reading(first_lane=True)
    if parsed.apart is None:
        return parsed, simulation
    if parsed.apart[0] >= kernel.warps:
        raise UsageError(f"the witness has lanes of warp {parsed.apart[0]}, of {kernel.warps}")
    return parsed, simulation.lanes_apart(*parsed.apart)


def repeat(
    simulation: Simulation, witness: Witness, inputs: Mapping[str, NDArray[Any]],
    trace: Callable[[simpy.Environment], Trace] | None = None,
) -> Run:  # fmt: skip
    """The run of a witness on a compiled program; ``trace`` makes what watches a cluster."""
    environments: list[tuple[int, simpy.Environment]] = []
    for cluster in witness.clusters:
        picks = witness.choices.get(cluster)
        env: TimedEnvironment | ChoiceEnvironment
        if witness.policy == "resident":
            env = ResidentEnvironment(witness.first)
        elif picks is None:
            env = TimedEnvironment()
        else:
            env = ChoiceEnvironment(ReplayChooser(picks))
        if trace is not None:
            env.trace = trace(env)
        environments.append((cluster, env))
    return simulation.run_on(inputs, environments, answers=witness.answers, order=witness.drawing)


def shorten(
    simulation: Simulation, witness: Witness, run: Run, inputs: Mapping[str, NDArray[Any]]
) -> tuple[Witness, Run]:
    """A witness with fewer deliberate picks that still shows the first finding of ``run``.

    Delta debugging: cuts the tail off, then sets stretches of picks to 0, halving their length.
    """
    if witness.policy != "replay" or not run.findings:
        return witness, run
    shortening = _Shortening(simulation, witness, run, inputs)
    for cluster in witness.choices:
        shortening.cut(cluster)
        shortening.flatten(cluster)
    return shortening.witness, shortening.run


class _Shortening:
    """The best witness so far and what further attempts may cost."""

    def __init__(
        self,
        simulation: Simulation,
        witness: Witness,
        run: Run,
        inputs: Mapping[str, NDArray[Any]],
    ) -> None:
        self.witness = witness
        self.run = run
        self._simulation = simulation
        self._inputs = inputs
        self._target = _signature(run.findings[:1])
        cost = max(1, run.stats.instructions)
        self._left = min(_SHORTENING_RUNS, _SHORTENING_INSTRUCTIONS // cost)

    def _try(self, cluster: int, picks: tuple[int, ...]) -> bool:
        """Keeps ``picks`` if the finding still shows."""
        if self._left <= 0 or picks == self.witness.choices[cluster]:
            return False
        self._left -= 1
        trial = replace(self.witness, choices={**self.witness.choices, cluster: picks})
        run = repeat(self._simulation, trial, self._inputs)
        if not self._target <= _signature(run.findings):
            return False
        self.witness, self.run = trial, run
        return True

    def cut(self, cluster: int) -> None:
        """Cuts the tail off, in shrinking pieces."""
        size = len(self.witness.choices[cluster])
        while size:
            picks = self.witness.choices[cluster]
            if not self._try(cluster, picks[: max(0, len(picks) - size)]):
                size //= 2

    def flatten(self, cluster: int) -> None:
        """Sets stretches of picks to 0, in shrinking lengths; then drops trailing zeros."""
        size = len(self.witness.choices[cluster])
        while size:
            for start in range(0, len(self.witness.choices[cluster]), size):
                picks = self.witness.choices[cluster]
                zeros = (0,) * len(picks[start : start + size])
                self._try(cluster, picks[:start] + zeros + picks[start + size :])
            size //= 2
        picks = self.witness.choices[cluster]
        while picks and picks[-1] == 0:
            picks = picks[:-1]
        self._try(cluster, picks)


def _signature(findings: Iterable[Finding]) -> set[tuple[object, ...]]:
    """What makes two findings the same defect."""
    return {(f.rule, f.locations) for f in findings}
