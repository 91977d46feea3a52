"""`certify`: whether the conditions of docs/soundness.md hold of a launch, checked from nothing.

The kernel executes each class of clusters once, in one schedule, and checks conditions where things
happen and at the end. It shares the definitions of instructions with what finds proofs, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.ir.tensor_memory import COLUMNS
from tilesim.proof import effects, moving
from tilesim.proof.certificate import Certificate, Every, Repetition, Value, fingerprint
from tilesim.proof.forms import Family, family
from tilesim.proof.machine import MOST_STEPS, Change, Machine
from tilesim.proof.memory import MayBeEqual, Meets, Ranges, apart
from tilesim.proof.moving import Box
from tilesim.proof.operands import LANES, Operands
from tilesim.proof.repetitions import leave_out
from tilesim.proof.rules import RULES, Answer, NotCovered, Refuted, Rule, rule

Classes: TypeAlias = Sequence[Sequence[int]]
Repetitions: TypeAlias = Sequence[Sequence[Repetition]]

#: clusters that are executed
MOST_CLASSES = 64
#: of an SM: bytes of shared memory, those that a CTA takes beside its own, warps
_OF_SM = 228 * 1024, 1024, 64


def certify(
    mir: Mir, classes: Classes | None = None, repetitions: Repetitions | None = None, *,
    strict: Strict = "practice", until: float | None = None, most: int = MOST_STEPS,
    inputs: Mapping[str, bytes] | None = None, assumed: Collection[str] = (),
    together: bool = False, of_all: Family | None = None,
) -> Answer:  # fmt: skip
    """Whether no schedule of a launch deadlocks, races, or gives an operation another phase.

    Args:
        mir: The program and its launch.
        classes: Clusters that are said to do the same, each in one class; of a class one is
            executed. None: every cluster is.
        repetitions: Of each class, or of each cluster, what is left out. None: nothing is.
        strict: ``ptx``: by the text; ``practice``: also by what shipping code relies on.
        until: When to give up, in seconds of `time.monotonic`: what is not executed by then is not
            covered.
        most: The same in instructions of each class.
        inputs: The bytes that tensors are said to begin with: the answer is about these.
        assumed: What the proof leans on, by name (`Operands`).
        together: Whether all clusters are executed together, as they wait for each other.
        of_all: Of which programs ``mir`` is the first: the answer is about all of them.
    """
    v = Operands(mir, strict, inputs, assumed, of_all)
    try:
        while True:
            try:
                _launch(v, classes, repetitions, until, most, together=together)
                break
            except MayBeEqual:
                if v.follows or v.ptx or v.launches or of_all is not None:
                    raise
                v.follows = True
            except Meets:
                if not v.moves:
                    raise
                v.moves = False
    except Refuted as why:
        return Answer("refuted", why.rule, why.what)
    except NotCovered as why:
        return Answer("not covered", what=why.what)
    except MemoryError:
        return Answer("not covered", what="memory")
    return Answer("certified")


def table() -> list[Rule]:
    """All rules that are enforced, by their numbers."""
    return sorted(RULES.values(), key=lambda one: one.number)


def recheck(
    certificate: Certificate, mir: Mir, *, until: float | None = None, most: int = MOST_STEPS,
    programs: Callable[[int], Mir] | None = None,
) -> Answer:  # fmt: skip
    """What the kernel says of a program and a certificate that is said to be of it; ``until`` and
    ``most``: as `certify` has them; ``programs``: makes that of each value of its parameter."""
    if fingerprint(mir) != certificate.fingerprint:
        return Answer("refuted", "fingerprint", f"a certificate of another {certificate.kernel}")
    given = partial(certify, strict=certificate.strict, until=until, most=most,
                    inputs=dict(certificate.inputs), assumed=certificate.assumptions,
                    together=certificate.together)  # fmt: skip
    answer, every = given(mir, certificate.classes, certificate.repetitions), certificate.every
    if every is None or answer.verdict != "certified":
        return answer
    try:
        _no_value_is_left_out(every)
        for one in every.values:
            first, of_all = _of_a_value(every, one, programs, certificate.inputs)
            answer = given(first, one.classes, one.repetitions, of_all=of_all)
            if answer.verdict != "certified":
                what = f"{every.parameter} = {every.at(one.number)}: {answer.what}"
                return replace(answer, what=what)
    except NotCovered as why:
        return Answer("not covered", what=why.what)
    return answer


@rule("values", "every value is one of those that are checked, or a period or more behind one")
def _no_value_is_left_out(every: Every) -> None:
    """Raises: NotCovered: some value is neither."""
    reached = dict[int, int]()
    for one in sorted(every.values, key=lambda one: one.number):
        residue = one.number % every.period if every.period else -1
        if residue < 0 or one.number > reached.get(residue, residue):
            break
        behind = one.number + (one.most + 1) * every.period
        reached[residue] = max(behind, reached.get(residue, residue))
    residues = range(min(every.period, every.last + 1))
    if not every.step or not residues or any(reached.get(r, r) <= every.last for r in residues):
        raise NotCovered("a value of the parameter that the certificate leaves out")


def _of_a_value(
    every: Every, one: Value, programs: Callable[[int], Mir] | None, inputs: Any
) -> tuple[Mir, Family | None]:
    """The program of a value of a parameter, and of those for which it stands.

    Raises: NotCovered: it is another one, or stands for none."""
    if programs is None:
        raise NotCovered("programs of other values, without what makes them")
    further = (one.number + k * every.period for k in (0, 1, one.most))
    first = programs(every.at(next(further)))
    if fingerprint(first) != one.fingerprint:  # before any more is made that it names
        raise NotCovered(f"another program of {every.parameter} = {every.at(one.number)}")
    others = (programs(every.at(number)) for number in further)
    of_all = family((first, *others), one.most) if one.most else None
    if of_all is not None and any(any(of_all.tensors.get(name, ())) for name, _ in inputs):
        raise NotCovered("contents of a tensor whose size depends on the parameter")
    return first, of_all


def _launch(
    v: Operands, classes: Classes | None, left_out: Any, until: float | None, most: int, *,
    together: bool,
) -> None:  # fmt: skip
    """One cluster of each class, executed, or all ``together``, but for what repetitions leave
    out."""
    if any(tensor.dependent for tensor in v.program.tensors):
        raise NotCovered("tensors of an earlier grid")
    clusters = v.program.ctas // v.program.cluster_size
    if classes is None and (v.launches or together):
        classes = [range(clusters)]
    _not_too_many(clusters if classes is None else len(classes))
    classes = [[c] for c in range(clusters)] if classes is None else classes
    if v.family is not None and (v.launches or together):
        raise NotCovered("launch control, or clusters that wait, for every value of a parameter")
    if len(classes) > 1 and (v.launches or together):
        raise NotCovered("launch control, of clusters that differ")
    _partition(classes, clusters)
    seen: dict[str, list[Ranges]] = {}
    boxes: dict[Box, None] = {}
    for some, repetitions in zip_longest(classes, (left_out or ())[: len(classes)], fillvalue=()):
        machine = Machine(v, some, effects.execute, until, most, together=together)
        machine.boxes = boxes
        if any(t.constant and t.name not in machine.read_only for t in v.program.tensors):
            raise NotCovered("constant memory at which some instruction may write")
        for left in repetitions:
            leave_out(machine, left)
        for one in machine.ends():
            at_the_end(one)
        for name, accessed in () if v.launches else machine.accessed():
            seen.setdefault(name, []).append(accessed)
    for name, ranges in seen.items():
        apart(name, ranges, exact=not v.moves)
    moving.apart(boxes, v.cone.most)


def _not_too_many(classes: int) -> None:
    if classes > MOST_CLASSES:
        raise NotCovered(f"{classes} classes of clusters")


@rule("partition", "each cluster of the launch is in one class")
def _partition(classes: Classes, clusters: int) -> None:
    if sorted(c for some in classes for c in some) != list(range(clusters)) or not all(classes):
        raise Refuted("partition", "the classes leave clusters out, or have them twice")


def at_the_end(m: Machine) -> None:
    """The conditions on the ends of CTAs, and on what outlives nothing."""
    for rank in range(m.size):
        lanes = np.arange(rank * m.in_cta, (rank + 1) * m.in_cta)
        for at, life in m.lives:
            if at[0] == rank and not life.dead:
                life.last_phase()
                m.over_before(life, lanes, "the CTA ends")
        _peers_outlive(m, rank)
        _nothing_under_way(m, rank)
    for pool in m.pools:
        pool.at_exit()
        pool.quarters_named()
    _no_cluster_in_the_way(m)
    _both_relinquish(m)
    _registers(m)


@rule("D9", "a CTA ends behind all that others do in its shared memory")
def _peers_outlive(m: Machine, rank: int) -> None:
    lanes = slice(rank * m.in_cta, (rank + 1) * m.in_cta)
    for (cta, lane), position in m.touched.items():
        if cta == rank and not (m.order.past[lanes, lane] >= position).any():
            raise Refuted("D9", f"thread {lane} accesses CTA {cta}, which may have ended")


@rule("B34", "a CTA ends behind the asynchronous accesses of its shared memory")
def _nothing_under_way(m: Machine, rank: int) -> None:
    for record in m.under_way(rank):
        raise Refuted("B34", f"{record.where}: under way when CTA {rank} ends")


@rule("G6", "no allocation waits for a cluster on the same SM that may wait for this one, too")
def _no_cluster_in_the_way(m: Machine) -> None:
    """Clusters on an SM share its columns. That of a CTA which allocates once waits for nothing
    while it has them; otherwise all that there can be find columns, wherever others lie. So do CTAs
    of a cluster, the two of a pair apart, if it is not assumed that they lie on different SMs.

    Raises: NotCovered: one may not."""
    p, (nbytes, reserved, warps) = m.program, _OF_SM
    of_sm = min(nbytes // (p.smem_requested + reserved), warps // p.warps)
    clusters = min(p.ctas // p.cluster_size, of_sm)
    times = max((len(pool.every) for pool in m.pools), default=0)
    most = max((e.columns for _, e in m.mir.all_of(fx.AllocatesTmem)), default=0)
    waits = p.cluster_size * times > 1 or m.whole
    if waits and clusters > 1 and clusters * times * most > COLUMNS:
        raise NotCovered("allocations of tensor memory that may wait for other clusters")
    pairs = all(e.pair for _, e in m.mir.all_of(fx.AllocatesTmem))
    ctas = min(p.cluster_size // (1 + pairs), of_sm)
    if ctas > 1 and ctas * times * most > COLUMNS and "cluster-spread" not in m.operands.assumed:
        raise NotCovered("tensor memory that a cluster may wait for: cluster-spread is not assumed")


@rule("G9-exit", "both CTAs of a pair give up the permit to allocate, or none does")
def _both_relinquish(m: Machine) -> None:
    pairs = any(e.pair for _, e in m.mir.all_of(fx.RelinquishesTmem))
    for even, odd in zip(m.pools[::2], m.pools[1::2], strict=False):
        if pairs and even.relinquished != odd.relinquished:
            raise Refuted("G9-exit", "tcgen05.relinquish_alloc_permit of a pair in one CTA only")


@rule("E17", "every setmaxnreg.inc is granted: what warps of a partition have fits their pool")
def _registers(m: Machine) -> None:
    """What they have at most, whatever comes first; or what they end with, where nothing is given
    back behind an .inc."""
    p, changes = m.program, m.register_changes
    most = min(p.target.registers // (LANES * p.warps), 255) // 8 * 8
    start = p.registers or min([most, *(c.registers for c in changes if c.increase)])
    for rank in range(m.size):
        own = [[c for c in changes if (c.rank, c.warp) == (rank, w)] for w in range(p.warps)]
        for first in range(0, p.warps, 4):
            _by_warpgroup(own[first : first + 4], ptx=m.ptx)
        has = [[start, *(c.registers for c in some)] for some in own]
        real = [[(n, c) for n, c in zip(mine, some, strict=False) if n != c.registers]
                for some, mine in zip(own, has, strict=True)]  # fmt: skip
        for before, c in (one for some in real for one in some):
            if (c.registers < before) == c.increase:
                raise Refuted("E17", f"setmaxnreg of warp {c.warp} from {before} to {c.registers}")
        # a warp runs on the partition of the SM that its number modulo 4 says, and shares its pool
        parts = [has[part::4] for part in range(min(4, p.warps))]
        if all(sum(map(max, part)) <= start * len(part) for part in parts):
            continue
        if max(map(len, real)) > 1:
            raise NotCovered("a warp that changes its registers twice")
        once = [c for some in real for _, c in some]
        for c in (c for c in once if not c.increase):
            if any(o.increase and c.past[o.lane] >= o.position for o in once):
                raise NotCovered("registers that are given back after others are taken")
        for part in parts:
            if (total := sum(mine[-1] for mine in part)) > start * len(part):
                raise Refuted("E17", f"{total} of {start * len(part)} registers of a partition")


@rule("E15", "the warps of a warpgroup execute setmaxnreg together, .inc with the same number")
def _by_warpgroup(own: Sequence[Sequence[Change]], *, ptx: bool) -> None:
    """By warp, its changes: as many in each, each one behind those before it in all, but one that
    changes nothing. ``ptx``: also that, and there are four, which execute the same one, at one
    place in the code (U16)."""
    made = {tuple((c.registers, c.increase, c.place if ptx else 0) for c in some) for some in own}
    differ = len(made) > 1 and (ptx or any(c.increase for some in own for c in some))
    few = ptx and 0 < len(own) < 4 and any(own)
    if differ or few or len(set(map(len, own))) > 1:
        raise Refuted("E15", f"warps {own} execute different setmaxnreg")
    for n, c in ((n, c) for some in own for n, c in enumerate(some) if n):
        before = [some[n - 1] for some in own]
        changes = ptx or any(b.warp == c.warp and b.registers != c.registers for b in before)
        if changes and any(c.past[b.lane] < b.position for b in before):
            raise Refuted("E15", f"setmaxnreg of warp {c.warp} need not come behind those before")
