"""What a check covers, how far it came, and on what its verdict leaned.

A run at `practice` notes where a switch of SEMANTICS 0.3 accepts what the text refuses
(`Core.accepts`), and where one may have accepted something (`Core.lean`). Whether it did is what a
check at `ptx` says: each of its findings is something that only the switch accepts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tilesim.analysis.elected_lane import depends_on_elected
from tilesim.checker.assumptions import SWITCHES, WARPGROUP_WAIT, Leaning
from tilesim.checker.report import Report
from tilesim.checker.witness import WitnessPolicy
from tilesim.findings.finding import Finding
from tilesim.ir.effects import Reads, Registers
from tilesim.ir.expr import ScalarParam
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.sim.machine.register_pool import launch_registers
from tilesim.sim.machine.result import Leant
from tilesim.sim.machine.simulate import Run, Simulation, Stats
from tilesim.sim.machine.word_order import exact, reduction_form
from tilesim.wording import count

if TYPE_CHECKING:
    from tilesim.sim.schedulers.exhaustive import Exploration
    from tilesim.sim.schedulers.frontier import Limits


def bounded_by(found: Exploration, limits: Limits) -> str:
    """What a bound on preemptions means for the schedules explored."""
    if limits.preemptions is None:
        return ""
    return f", {found.explored.schedules} of them explored with {_at_most(limits.preemptions)} each"


def why_stopped(found: Exploration, limits: Limits) -> tuple[str, ...]:
    """Why exploring is no proof, as far as that is due to its limits, or to weak memory."""
    weak = (found.explored.weak,) if found.explored.weak else ()
    if found.stopped:
        done = count(found.explored.schedules, "schedule")
        return (*weak, f"exploration stopped after {done}: {found.stopped}")
    if limits.preemptions is not None and found.frontier is None and not found.explored.exact:
        return (f"exploration was bounded to {_at_most(limits.preemptions)} per schedule", *weak)
    return weak


def _at_most(preemptions: int) -> str:
    return f"at most {count(preemptions, 'preemption')}"


def whole(simulation: Simulation) -> str:
    """What running all clusters covers, in words."""
    program = simulation.program
    total, size = simulation.groups, program.cluster_size
    if simulation.together:
        return f"the whole grid of {program.ctas} CTAs"
    if total == 1:
        return "the CTA" if size == 1 else f"the cluster of {size} CTAs"
    return f"all {total} CTAs" if size == 1 else f"all {total} clusters of {size} CTAs"


def assumed_zero(names: tuple[str, ...]) -> tuple[str, ...]:
    """Why inputs that steer prove nothing if they were not given."""
    return tuple(
        f"control flow depends on the contents of {name}, which were not given (zeros assumed)"
        for name in names
    )


def scalars(program: Program) -> str:
    """The values of the scalars that the host passes, which a verdict is about."""
    given = [f"{p.name} = {p.value}" for p in program.params if isinstance(p, ScalarParam)]
    return f" with {', '.join(given)}" if given else ""


def partial(runs: Sequence[Run], last: Run | None, cluster_size: int) -> Run:
    """What was executed before a check was stopped: whole ``runs``, and what was done of the
    ``last`` one, all but one of whose clusters had ended."""
    done = sum(run.stats.ctas for run in runs)
    if last is not None:
        runs = [*runs, last]
        done += last.stats.ctas - cluster_size
    return Run((), {}, Stats(sum(run.stats.instructions for run in runs), done))


def so_far(run: Run, all_: str) -> str:
    """How far a timed run came before it was stopped: so many instructions of ``all_``."""
    return (
        f"{count(run.stats.instructions, 'warp instruction')} of the timed schedule of {all_}, the "
        f"whole of {count(max(0, run.stats.ctas), 'CTA')}; not a proof"
    )


def schedule_of(policy: WitnessPolicy, tried: int, first_in: int) -> str:
    """The schedule of a witness; ``tried`` were run, ``first_in`` is the cluster resident first."""
    return {
        "timed": "the timed schedule",
        "replay": f"schedule {tried}",
        "resident": f"the schedule with one cluster resident at a time, {first_in} first,",
    }[policy]


def assumptions(
    run: Run, mir: Mir, leaned: Collection[Leant], *, zero: Sequence[str],
    addressing: Sequence[str], steering: Sequence[str], certain: bool,
) -> Iterator[Leaning]:  # fmt: skip
    """What a verdict takes for granted: tensors that are ``zero`` at the start, those that
    addresses are taken from, those whose contents steer, and what the launch says; if it is
    ``certain``, how many registers are given, which a failing run has shown to be too few."""
    program = mir.kernel

    def assumed(name: str, text: str, locs: Iterable[Loc]) -> Leaning:
        return Leaning(name, text, tuple(dict.fromkeys(locs)) or (begin(mir),), "assumption")

    if zero:
        yield assumed("zero-state", f"with {', '.join(zero)} zero at the start", _uses(mir, zero))
    if any(o.rounds for o in run.outcomes):
        sums = (op.loc for op in mir.ops() if reduction_form(op) is not None and not exact(op))
        text = "reductions of floats, by inc and by dec leave what their order has"
        yield assumed("reduction-order", text, sums)
    unknown = dict.fromkeys(source for o in run.outcomes for source in o.in_bounds)
    if unknown:
        text = f"if the addresses are in bounds that are computed from {', '.join(unknown)}"
        yield assumed("in-bounds", text, ())
    loops = dict.fromkeys(loc for o in run.outcomes for loc in o.data_loops)
    if loops:
        yield assumed("loops-end", "if the loops end whose trip count depends on data", loops)
    traps = dict.fromkeys(loc for o in run.outcomes for loc in o.data_traps)
    if traps:
        yield assumed("no-trap", "if the kernel does not trap where data decides that", traps)
    spread = dict.fromkeys(loc for o in run.outcomes for loc in o.spread)
    if spread:
        text = "if no two CTAs of a cluster share the tensor memory of one SM (G6)"
        yield assumed("cluster-spread", text, spread)
    of_warpgroups = sorted(one.numbers for one in leaned if one.name == WARPGROUP_WAIT)
    waits = dict.fromkeys(mir.code[n].loc for numbers in of_warpgroups for n in numbers)
    if waits:
        text = "if wgmma.wait_group of one warp covers what its warpgroup issued (F5)"
        yield assumed(WARPGROUP_WAIT, text, waits)
    if mir.gives_up:
        yield assumed("no-timeout", "if no wait takes so long that the kernel traps", mir.gives_up)
    ends = dict.fromkeys(mir.code[n].loc for o in run.outcomes for n, _ in o.leaves.values())
    if ends and not certain:
        text = f"if the threads go on at {', '.join(map(str, ends))}, where data may end them"
        yield assumed("contents", text, ends)
    if addressing:
        text = f"if the addresses taken from {', '.join(addressing)} are in bounds"
        yield assumed("in-bounds", text, _uses(mir, addressing))
    if steering:
        yield assumed("contents", f"for these contents of {', '.join(steering)}",
                      _uses(mir, steering))  # fmt: skip
    if program.cluster_size > program.target.portable_cluster:
        text = f"clusters of {program.cluster_size} CTAs are not portable (D15)"
        yield assumed("cluster-size", text, ())
    changes = [mir.code[number].loc for number, _ in mir.all_of(Registers)]
    if certain and changes and program.registers is None:
        text = f"if a thread has {launch_registers(mir)} registers at launch, which is not declared"
        yield assumed("registers", text, changes)


def begin(mir: Mir) -> Loc:
    """Where a kernel is written, or its first instruction."""
    own = mir.kernel.loc
    return next((i.loc for i in mir.code if i.loc != UNKNOWN), own) if own == UNKNOWN else own


def _uses(mir: Mir, names: Sequence[str]) -> Iterator[Loc]:
    """Where tensors are read."""
    for number, effect in mir.all_of(Reads):
        if effect.view.tensor.name in names:
            yield mir.code[number].loc


#: the switches that findings of a rule belong to, where no instruction decides
_BY_RULE: Mapping[str, tuple[str, ...]] = {
    "proxy-fence": ("U12", "U14", "H24"),
    "wgmma-order": ("F3",),
    "tcgen05-order": ("U20", "U19", "U33"),
    "tmem-lifetime": ("G8", "U20", "U33"),
    "phase-ambiguity": ("U1",),
    "phase-alias": ("A21",),
    "participation": ("E15", "U16"),
    "named-barrier": ("E6",),
    "race": ("H23", "U4", "H3", "E12"),
    "deadlock": ("G9", "E12"),
    "out-of-bounds": ("U21", "U9", "B14"),
    "barrier-lifetime": ("A6", "A8"),
}
#: where not all runs are known that may have used one
_ANY: frozenset[Leant] = frozenset(Leant(switch, ()) for switch in SWITCHES)


def noted(simulation: Simulation) -> set[Leant]:
    """The switches that runs so far may have used, with instructions."""
    elections = depends_on_elected(simulation.code.graph)
    may = {one for one in simulation.leaned if one.name in SWITCHES}
    return may | ({Leant("E12", elections)} if elections else set())


def used(
    mir: Mir, may: Collection[Leant], strict: Report, *, undecided: bool
) -> tuple[Leaning, ...]:
    """The switches that were used, as a check at `ptx` says it; where that is ``undecided``, as
    what it found ended it, or it found nothing, those that ``may`` have been, or any."""
    if strict.verdict in ("proved", "exhausted"):
        return ()
    places: dict[str, dict[Loc, None]] = {}
    for finding in strict.findings:
        places.setdefault(_switch(finding, may), {}).update(dict.fromkeys(finding.locations))
    found = set(places)
    left = may or _ANY if undecided or not places else ()
    return _leanings(mir, (one for one in left if one.name not in found), places)


def surely_used(mir: Mir, may: Collection[Leant]) -> tuple[Leaning, ...] | None:
    """The switches that were used, if the runs themselves say that of all that ``may`` have been;
    None if a check at `ptx` has to say it."""
    return _leanings(mir, may, {}) if all(one.surely for one in may) else None


def _leanings(
    mir: Mir, noted: Iterable[Leant], places: dict[str, dict[Loc, None]]
) -> tuple[Leaning, ...]:
    """The switches of ``places``, and those that were ``noted``, by their names."""
    for switch, numbers, _ in sorted(noted):
        places.setdefault(switch, {}).update((mir.code[n].loc, None) for n in numbers)
    return tuple(
        Leaning(switch, SWITCHES[switch], tuple(locs) or (begin(mir),), "practice")
        for switch, locs in sorted(places.items())
    )


def _switch(finding: Finding, may: Collection[Leant]) -> str:
    """The switch without which a run has a finding."""
    numbers = {p.instruction for p in finding.participants}
    fitting = _BY_RULE.get(finding.rule, ())

    def rank(one: Leant) -> tuple[int, bool, bool, int]:
        switch, own, _ = one
        place = -fitting.index(switch) if switch in fitting else -len(SWITCHES)
        return len(numbers.intersection(own)), switch in fitting, one in may, place

    return max(sorted({*may, *_ANY}), key=rank)[0]
