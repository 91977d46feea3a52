"""Certificates of what a check has proved, for `tilesim.proof`. Nothing here is trusted.

One is of a launch, or for every value of a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import timedelta
from functools import cache
from time import monotonic
from typing import Any, TypeAlias

from numpy.typing import NDArray

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.taint import flow_of
from tilesim.checker.certificate_file import read
from tilesim.checker.report import Claim, Values
from tilesim.dsl.kernel import Kernel, public
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.ir.verify import verify
from tilesim.limits import Timer, duration
from tilesim.proof.certificate import Certificate, Every, Repetition, Value, fingerprint
from tilesim.proof.check import MOST_CLASSES
from tilesim.proof.check import recheck as kernel_recheck
from tilesim.proof.effects import execute
from tilesim.proof.forms import Family, family
from tilesim.proof.machine import MOST_SHADOWS, MOST_STEPS, Machine
from tilesim.proof.memory import MayBeEqual
from tilesim.proof.operands import Differs, Operands
from tilesim.proof.repetitions import leave_out
from tilesim.proof.rules import Answer, NotCovered, Refuted
from tilesim.proof.spins import iterations
from tilesim.records import dataclass, field, replace
from tilesim.transforms.lower import lower

#: executions by which classes of clusters are looked for
MOST_LOOKS = 256
#: tries to find the next repetition
MOST_TRIES = 6
#: repetitions that are tried first, and fewest that are left out
FIRST_TRY, FEWEST = 512, 4
#: rounds before which none is looked for: short runs are executed faster
SHORT = 8
#: clusters of a class of which repetitions are looked for: what stands for those of more of them
#: takes as long as to execute them all
MOST_CLUSTERS = 32
#: instructions that are executed before classes and repetitions are looked for
SHORT_RUN = 8_000
#: what is trusted where a plain form is not what was rechecked
PASSES = "the passes behind the plain form of PTX"
#: clusters that do the same, and of each class what is left out
Proposal: TypeAlias = tuple[
    tuple[tuple[int, ...], ...] | None, tuple[tuple[Repetition, ...], ...] | None
]


def machine_form(program: Program | Mir) -> Mir:
    """What certificates are of: the program as the machine runs it. That lanes go one way where a
    jump says so is a rule of the kernel.

    Raises:
        InvalidProgram: it is rejected before it runs.
    """
    verify(program, to_run=True, jumps=False)
    return program if isinstance(program, Mir) else lower(program)


@public
def recheck(
    certificate: Certificate | str, program: Program | Mir | Callable[..., Program | Mir], *,
    time_limit: timedelta | float | None = None, params: Mapping[str, Any] | None = None,
) -> Answer:  # fmt: skip
    """What the proof kernel says of a certificate, or of the text of its file, and the program of
    which it is one; of a kernel, or another function that makes programs, that with ``params``,
    else the defaults of its parameters, and, of a certificate for all values of one, those with
    these. ``time_limit``: what it may take, in seconds or as a timedelta; what takes longer is not
    covered.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: the text is no certificate, or the time limit is not positive.
    """
    if isinstance(certificate, str):
        certificate = read(certificate)
    timer = Timer(None if time_limit is None else duration("time_limit", time_limit))
    if isinstance(program, Program | Mir):
        return kernel_recheck(certificate, machine_form(program), until=timer.until)
    build = program.build if isinstance(program, Kernel) else program
    given, every = params or {}, certificate.every
    programs = None if every is None else made_by(build, given, every.parameter)
    mir = machine_form(build(**given))
    return kernel_recheck(certificate, mir, until=timer.until, programs=programs)


def made_by(
    build: Callable[..., Program | Mir], arguments: Mapping[str, Any], name: str
) -> Callable[[int], Mir]:
    """What makes the program of each value of a parameter, as certificates are of it."""

    def program(value: int) -> Mir:
        try:
            return machine_form(build(**{**arguments, name: value}))
        except InvalidProgram as wrong:
            raise NotCovered(f"{name} = {value} is refused: {wrong.diagnostics[0]}") from wrong

    return program


def certified(
    program: Program | Mir, strict: Strict, assumptions: tuple[str, ...], until: float | None,
    inputs: Mapping[str, NDArray[Any]] | None = None,
) -> tuple[Certificate, Answer]:  # fmt: skip
    """The certificate of a program that is proved at a level, under named assumptions and with what
    tensors hold, and what the proof kernel says of it; ``until``: when to give up, in seconds of
    `time.monotonic`."""
    mir = machine_form(program)
    named, digest, given = mir.kernel.name, fingerprint(mir), tuple(sorted(assumptions))
    held = steering(mir, inputs or {})
    one = (tuple(range(mir.kernel.ctas // mir.kernel.cluster_size)),)
    made = Certificate(named, "", digest, strict, given, held, one)
    most = SHORT_RUN if len(one[0]) <= MOST_CLUSTERS else MOST_STEPS
    answer = kernel_recheck(made, mir, until=until, most=most)
    if answer.verdict == "certified":  # what is short is executed sooner than looked through
        return made, answer
    found = proposed(mir, strict, until, dict(held), assumed=given)
    if until is not None and monotonic() >= until:
        return replace(made, classes=None), Answer("not covered", what="time")
    made = Certificate(named, "", digest, strict, given, held, *found)
    answer = kernel_recheck(made, mir, until=until)
    if answer.verdict == "refuted" and any(made.repetitions or ()):
        # of what repetitions do in global memory nothing is taken to be ordered: without them
        made = replace(made, repetitions=None)
        answer = kernel_recheck(made, mir, until=until)
    waiting = answer.verdict == "not covered" and iterations(Operands(mir, strict))
    if waiting and mir.kernel.ctas > mir.kernel.cluster_size:
        other = replace(made, classes=None, repetitions=None, together=True)
        again = kernel_recheck(other, mir, until=until)
        if again.verdict != "not covered":
            return other, again
    return made, answer


def certified_plain(
    program: Mir, plain: Callable[[], Mir], strict: Strict, assumptions: tuple[str, ...],
    until: float | None, inputs: Mapping[str, NDArray[Any]],
) -> tuple[Certificate, Answer, str]:  # fmt: skip
    """As `certified`, of a kernel in PTX by its plain form, which ``plain`` makes; by ``program``,
    what passes have made of that, if the kernel covers this only. Third, what is trusted besides
    that is not trusted of a plain form; "": nothing."""
    made = None
    try:
        made, answer = certified(plain(), strict, assumptions, until, inputs)
        if answer.verdict != "not covered" or (until is not None and monotonic() >= until):
            return made, answer, ""
        why = answer.what
    except InvalidProgram as wrong:
        why = str(wrong.diagnostics[0])
    other, again = certified(program, strict, assumptions, until, inputs)
    if again.verdict != "certified":
        return (other, again, "") if made is None else (made, answer, "")
    return other, again, f"{PASSES}, as the plain form is not covered: {why}"


def form_of(
    certificate: Certificate, program: Callable[[], Mir], plain: Callable[[], Mir]
) -> tuple[Mir, str]:
    """The form of a kernel in PTX of which a certificate is one, the plain one if it is of neither;
    and what is trusted as `certified_plain` has it."""
    form = plain()
    if fingerprint(form) != certificate.fingerprint:
        other = program()
        if fingerprint(other) == certificate.fingerprint:
            return other, PASSES
    return form, ""


def steering(mir: Mir, inputs: Mapping[str, NDArray[Any]]) -> tuple[tuple[str, bytes], ...]:
    """The inputs that decide what a program does: tensors and the bytes they hold."""
    flow = flow_of(graph_of(mir))
    named = sorted({*flow.steering_inputs, *flow.steering_state})
    laid_out = {t.name for t in mir.kernel.tensors if t.strides is None}
    return tuple((n, inputs[n].tobytes()) for n in named if n in inputs and n in laid_out)


def proposed(
    mir: Mir, strict: Strict = "practice", until: float | None = None,
    inputs: Mapping[str, bytes] | None = None, *, assumed: tuple[str, ...] = (),
) -> Proposal:  # fmt: skip
    """What `certify` may leave out, found by trying; None: there are too many classes of clusters,
    or they are not found by ``until``, in seconds of `time.monotonic`. ``inputs``, ``assumed``:
    what tensors hold, and what the proof leans on."""
    left: Sequence[int] = range(mir.kernel.ctas // mir.kernel.cluster_size)
    classes: list[tuple[int, ...]] = []
    left_out: list[tuple[Repetition, ...]] = []
    looks = 0
    while left:
        others: set[int] = set()
        some = left
        while True:
            try:
                v = Operands(mir, strict, inputs, assumed)
                left_out.append(repetitions_of(v, some, until))
                break
            except Differs as why:
                others |= set(why.clusters)
                some = [c for c in some if c not in others]
                looks += 1
            if looks == MOST_LOOKS:
                return None, None
        classes.append(tuple(some))
        left = sorted(others)
        late = until is not None and monotonic() >= until
        if late or (left and len(classes) == MOST_CLASSES):
            return None, None
    return tuple(classes), tuple(left_out)


def repetitions_of(
    v: Operands, clusters: Sequence[int], until: float | None = None
) -> tuple[Repetition, ...]:
    """What can be left out of the run of some clusters.

    Raises: Differs: one of them decides otherwise than the first one."""
    found: list[Repetition] = []
    if v.launches:  # the kernel executes each number of clusters that launch control may hand out
        return ()
    try:
        machine = Machine(v, clusters, execute, until)
        seen: dict[object, int] = {}
        tries = MOST_TRIES if len(clusters) <= MOST_CLUSTERS else 0
        while any(w.alive for w in machine.warps):
            machine.rounds_until(machine.rounds + 1)
            now = signature(machine)
            period = machine.rounds - seen.get(now, machine.rounds)
            seen[now] = machine.rounds
            if machine.rounds < SHORT or not period or not tries:
                continue
            tries -= 1
            behind = _left_out(machine, period)
            if behind is not None:
                machine, repetition = behind
                found.append(repetition)
                seen, tries = {}, MOST_TRIES
    except Differs:
        raise
    except MayBeEqual:
        if not (v.follows or v.ptx):
            v.follows = True
            return repetitions_of(v, clusters, until)
    except (Refuted, NotCovered):
        pass  # the kernel will say so
    return tuple(found)


def signature(m: Machine) -> object:
    """What has to come back at least."""
    warps = [(tuple(w.at), frozenset(w.alive), frozenset(w.blocked)) for w in m.warps]
    barriers = [(life.phase & 1, life.pending, life.tx, life.dead) for _, life in m.lives]
    return tuple(warps), tuple(barriers)


def _left_out(m: Machine, period: int) -> tuple[Machine, Repetition] | None:
    """The machine behind as many periods from now on as can be left out, if these are many."""
    best = None
    most = MOST_SHADOWS // sum(len(w.each) for w in m.warps)
    times = min(FIRST_TRY, most)
    while FEWEST <= times <= most:
        behind, repetition = copied(m), Repetition(m.rounds, period, times)
        try:
            leave_out(behind, repetition)
        except Differs as why:
            if not why.repetition:
                raise
            most = why.repetition - 1
            times = min(times - 1, most)
            continue
        except NotCovered:
            break
        best = behind, repetition
        if times == most:
            break
        times = min(8 * times, most)
    return best


def copied(m: Machine) -> Machine:
    """A copy for a try; what happened in global memory does not matter for it."""
    shared: tuple[object, ...] = (m.mir, m.program, m.operands, m.tensors, m.static)
    memo: dict[int, object] = {id(one): one for one in shared} | {id(m.globals): {}}
    return deepcopy(m, memo)


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
    return made, kernel_recheck(made, machine_form(program), until=until, programs=programs)


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
        left_out = _left_out_of_family(of_all, (mir, second), some, proof)
        if left_out is None:
            return None
        found.append(left_out)
    return replace(alone, repetitions=tuple(found))


def _left_out_of_family(
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
