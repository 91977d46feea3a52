"""Certificates of proofs for every value of a parameter. Nothing here is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from time import monotonic
from typing import Any

from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.proof.certificate import Certificate, Every, Repetition, Value, fingerprint
from tilesim.proof.check import recheck
from tilesim.proof.effects import execute
from tilesim.proof.forms import Family, family
from tilesim.proof.machine import Machine
from tilesim.proof.operands import Operands
from tilesim.proof.repetitions import leave_out
from tilesim.proof.rules import Answer, NotCovered, Refuted
from tilesim.search.certificates import (
    MOST_TRIES,
    copied,
    machine_form,
    made_by,
    proposed,
    signature,
)
from tilesim.search.values import Claim, Values

#: the first value that may stand for others, in periods
_BEGINS = (2, 3, 4, 6, 8, 12, 16)
#: values that stand for themselves only
_MOST_ALONE = 128
#: what is trusted of a kernel that is a function
FORM = "that the kernel makes of values in between programs of the form of those that are built"


def certified_for_all(
    made: Certificate, program: Program | Mir, build: Callable[..., Program | Mir] | None,
    arguments: Mapping[str, Any], values: Mapping[str, Values], claim: Claim, until: float | None,
) -> tuple[Certificate, Answer]:  # fmt: skip
    """The certificate of a program that is proved, as one of all values of a parameter of which
    that was found, and what the proof kernel says of it; ``build`` makes programs, None: of PTX."""
    (name, asked), *others = values.items()
    last = asked.last if claim.limit is None else claim.limit[0]
    try:
        if others or last is None or claim.refused or build is None:
            what = "values of PTX, of several parameters, without end, or that are refused"
            raise NotCovered(what)
        programs = made_by(build, arguments, name)
        number = (last - asked.first) // asked.step
        wanted = Every(name, asked.first, asked.step, number, claim.period, ())
        proof = Proof(made.strict, dict(made.inputs), made.assumptions, until)
        every = every_value(wanted, programs, proof)
    except NotCovered as why:
        return made, Answer("not covered", what=f"{claim.wanted}: {why}")
    made = replace(made, every=every)
    return made, recheck(made, machine_form(program), until=until, programs=programs)


@dataclass(frozen=True)
class Proof:
    """What a proof is of: its level, what tensors hold, and what it leans on; and until when a
    certificate of it is looked for."""

    strict: Strict = "practice"
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    until: float | None = None

    def operands(self, mir: Mir, of_all: Family | None = None) -> Operands:
        """Of a program, or of all of a family."""
        return Operands(mir, self.strict, self.inputs, self.assumed, of_all)

    def alone(self, number: int, mir: Mir, most: int = 0) -> Value:
        """A value, of which the program is executed."""
        found = proposed(mir, self.strict, self.until, self.inputs, assumed=self.assumed)
        return Value(number, most, fingerprint(mir), *found)


def every_value(wanted: Every, programs: Callable[[int], Mir], proof: Proof) -> Every:
    """The values of a certificate that is ``wanted`` for a range, which has none yet.

    Raises:
        NotCovered: no value is found that stands for others.
    """
    program = cache(lambda number: programs(wanted.at(number)))
    period, last = wanted.period, wanted.last
    if last < _MOST_ALONE:
        alone = tuple(proof.alone(number, program(number)) for number in range(last + 1))
        return replace(wanted, period=1, values=alone)
    for begin in (times * period for times in _BEGINS if times * period <= _MOST_ALONE):
        some: list[Value] = []
        for number in range(begin, min(begin + period, last + 1)):
            found = for_others(program, number, period, (last - number) // period, proof)
            if found is None:
                break
            some.append(found)
        else:
            before = (proof.alone(number, program(number)) for number in range(begin))
            return replace(wanted, values=(*before, *some))
        if proof.until is not None and monotonic() >= proof.until:
            raise NotCovered("time")
    raise NotCovered("no value that is found to stand for others")


def for_others(
    program: Callable[[int], Mir], number: int, period: int, most: int, proof: Proof
) -> Value | None:
    """A value as one that stands for so many that are some periods larger, if it does."""
    mir = program(number)
    alone = proof.alone(number, mir, most)
    if not most or alone.classes is None:
        return alone if not most else None
    second, last = (program(number + k * period) for k in (1, most))
    of_all, found = family((mir, second, last), most), []
    for some in alone.classes:
        left_out = _left_out(of_all, (mir, second), some, proof)
        if left_out is None:
            return None
        found.append(left_out)
    return replace(alone, repetitions=tuple(found))


def _left_out(
    of_all: Family, first: tuple[Mir, Mir], clusters: Sequence[int], proof: Proof
) -> tuple[Repetition, ...] | None:
    """What is repeated in a run of some clusters, from the lengths of the ``first`` two programs';
    None: it is not found."""
    for once in (False, True):
        try:
            lengths = [_rounds(Machine(proof.operands(mir), clusters, execute, proof.until))
                       for mir in first]  # fmt: skip
            extra = lengths[1] - lengths[0]
            found = _in_all(first[0], of_all, clusters, extra, proof, once=once)
            if found or not extra:
                return found
        except (NotCovered, Refuted):
            pass
    return None


def _rounds(machine: Machine) -> int:
    """How many rounds the run of a cluster takes."""
    while any(w.alive for w in machine.warps):
        machine.rounds_until(machine.rounds + 1)
    return machine.rounds


def _in_all(
    mir: Mir, of_all: Family, clusters: Sequence[int], extra: int, proof: Proof, *, once: bool
) -> tuple[Repetition, ...]:
    """What is repeated where the next program takes so many rounds more, one period of each loop,
    or, if that is done ``once``, as many as it takes; nothing, if it is not found."""
    machine = Machine(proof.operands(mir, of_all), clusters, execute, proof.until)
    found: list[Repetition] = []
    seen: dict[object, int] = {}
    by_round: dict[int, object] = {}
    tries, period = MOST_TRIES, 0
    while any(w.alive for w in machine.warps):
        machine.rounds_until(machine.rounds + 1)
        now = by_round[machine.rounds] = signature(machine)
        if period and by_round.get(machine.rounds - period, now) == now:
            continue  # what is left of a loop of which repetitions are left out
        period = 0
        again = machine.rounds - seen.get(now, machine.rounds)
        seen[now] = machine.rounds
        if not again or not tries or again > extra or (once and extra % again):
            continue
        times = extra // again if once else 1
        behind, one = copied(machine), Repetition(machine.rounds, again, times)
        behind.operands = proof.operands(mir, of_all)
        try:
            leave_out(behind, one)
        except (NotCovered, Refuted):
            tries -= 1
            continue
        machine, period, extra = behind, again, extra - times * again
        seen, by_round, tries = {}, {machine.rounds: now}, MOST_TRIES
        found.append(one)
    return () if extra else tuple(found)
