"""Random loops in PTX whose registers are set under predicates, and steer late.

Each turn sets registers with and without a guard, by `selp`, in regions of some lanes, by shuffles
and votes, from the turn, the lane, the CTA and each other. Then one of them is compared with a
constant: where that holds a thread does not arrive on a barrier that all threads wait for, or reads
out of bounds. Which turn that is follows from an interpreter of this file, which knows nothing of
tilesim: what is said of a program is compared with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Launch, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: what all threads hold in a register: (ctas, threads)
_Lanes: TypeAlias = NDArray[Any]
#: turns that are interpreted
TURNS = 1_500
_REGISTERS = ("%x0", "%x1", "%x2", "%x3")
_PREDICATES = ("%q0", "%q1", "%q2")
#: predicates that are the same in all turns: of no thread, all, half of each warp, one, and of CTAs
_FIXED = ("%never", "%always", "%half", "%one", "%cta")
_ARITHMETIC: dict[str, Callable[[_Lanes, _Lanes], _Lanes]] = {
    "add.u32": lambda a, b: a + b, "sub.u32": lambda a, b: a - b,
    "mul.lo.u32": lambda a, b: a * b, "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b,
    "min.u32": np.minimum, "max.u32": np.maximum,
}  # fmt: skip
_COMPARED: dict[str, Callable[[_Lanes, _Lanes], _Lanes]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "ge": np.greater_equal,
}  # fmt: skip
_JOINED: dict[str, Callable[[_Lanes, _Lanes], _Lanes]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip

_TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry guarded(.param .u32 n)
.maxntid {threads}
{{
.reg .pred %p<9>; .reg .pred %q<4>; .reg .pred %never, %always, %half, %one, %cta;
.reg .b32 %r<20>; .reg .b32 %x<6>; .reg .b32 %i, %lane, %c;
.shared .align 8 .b64 bar;
.shared .align 4 .b32 box;
ld.param.u32 %r1, [n]; mov.u32 %r3, %tid.x; mov.u32 %r4, bar; mov.u32 %r14, box;
and.b32 %lane, %r3, 31; mov.u32 %c, %ctaid.x;
setp.ne.u32 %p1, %r3, 0;
@%p1 bra MADE;
mbarrier.init.shared::cta.b64 [%r4], {threads};
st.shared.u32 [%r14], {boxed};
MADE: bar.sync 0;
setp.gt.u32 %never, %r3, 1000; setp.lt.u32 %always, %r3, 1000; setp.lt.u32 %half, %lane, 16;
setp.eq.u32 %one, %lane, 3; setp.eq.u32 %cta, %c, 1;
setp.eq.u32 %q0, %lane, 0; setp.lt.u32 %q1, %r3, 1000; setp.gt.u32 %q2, %r3, 1000;
mov.u32 %x0, 0; mov.u32 %x1, 1; mov.u32 %x2, %lane; mov.u32 %x3, %c; mov.u32 %i, 0;
LOOP:
{before}
setp.eq.u32 %p3, {tested}, {constant};
{fault}
and.b32 %r7, %i, 1;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r4], %r7;
@!%p4 bra WAIT;
{after}
add.u32 %i, %i, 1;
setp.lt.u32 %p5, %i, %r1;
@%p5 bra LOOP;
ret;
}}
"""
#: what happens where the condition holds, and the rule of what comes of it
FAULTS = {
    "branch": (
        "@%p3 bra SKIP;\nmbarrier.arrive.shared::cta.b64 _, [%r4];\nSKIP:", "deadlock"
    ),
    "guard": ("@!%p3 mbarrier.arrive.shared::cta.b64 _, [%r4];", "deadlock"),
    "address": (
        "selp.u32 %r8, 1048576, 0, %p3;\nadd.u32 %r8, %r8, %r14;\nld.shared.u32 %r9, [%r8];\n"
        "mbarrier.arrive.shared::cta.b64 _, [%r4];", "out-of-bounds"
    ),
}  # fmt: skip


class State:
    """What threads hold; ``active``: those that execute what is interpreted."""

    def __init__(self, ctas: int, threads: int, boxed: int) -> None:
        shape = ctas, threads
        tid = np.broadcast_to(np.arange(threads, dtype=np.uint32), shape)
        cta = np.broadcast_to(np.arange(ctas, dtype=np.uint32)[:, None], shape)
        lane, boxes = tid % np.uint32(32), np.full(shape, boxed, dtype=np.uint32)
        zero, yes = np.zeros(shape, dtype=np.uint32), np.ones(shape, dtype=bool)
        self.active: _Lanes = yes
        self.values: dict[str, _Lanes] = {
            "%x0": zero, "%x1": zero + np.uint32(1), "%x2": lane, "%x3": cta, "%i": zero,
            "%lane": lane, "%c": cta, "box": boxes, "%never": ~yes, "%always": yes,
            "%half": lane < 16, "%one": lane == 3, "%cta": cta == 1, "%q0": lane == 0, "%q1": yes,
            "%q2": ~yes,
        }  # fmt: skip

    def of(self, operand: str | int) -> _Lanes:
        """What an operand is in all threads."""
        if isinstance(operand, int):
            return np.full(self.active.shape, operand, dtype=np.uint32)
        return self.values[operand]

    def set(self, register: str, value: _Lanes, guard: Guard | None) -> None:
        """A register is set in the active threads in which a guard holds."""
        chosen = self.active if guard is None else self.active & guard.holds(self)
        self.values[register] = np.where(chosen, value, self.values[register])


@dataclass(frozen=True)
class Guard:
    """``@%p``, or ``@!%p``."""

    predicate: str
    negated: bool

    def __str__(self) -> str:
        return f"@{'!' * self.negated}{self.predicate} "

    def holds(self, state: State) -> _Lanes:
        """In which threads it does."""
        held: _Lanes = state.of(self.predicate) != self.negated
        return held


@dataclass(frozen=True)
class Set:
    """An instruction that sets ``register`` to what ``value`` says, where its guard holds."""

    text: str
    register: str
    value: Callable[[State], _Lanes]
    guard: Guard | None = None

    def lines(self, label: str) -> str:
        """Its text; ``label`` begins the names of its labels."""
        return f"{self.guard or ''}{self.text}\n"

    def run(self, state: State) -> None:
        """Executes it."""
        state.set(self.register, self.value(state), self.guard)


@dataclass(frozen=True)
class Region:
    """Instructions that threads execute in which a guard does not hold; in the others it holds."""

    guard: Guard
    inside: Sequence[Set]
    others: Sequence[Set]

    def lines(self, label: str) -> str:
        """Its text."""
        inside = "".join(one.lines(f"{label}I{n}") for n, one in enumerate(self.inside))
        others = "".join(one.lines(f"{label}O{n}") for n, one in enumerate(self.others))
        if not self.others:
            return f"{self.guard}bra {label};\n{inside}{label}:\n"
        return f"{self.guard}bra {label}E;\n{inside}bra {label};\n{label}E:\n{others}{label}:\n"

    def run(self, state: State) -> None:
        """Executes it."""
        whole, holds = state.active, self.guard.holds(state)
        for arm, active in ((self.inside, whole & ~holds), (self.others, whole & holds)):
            state.active = active
            for one in arm:
                one.run(state)
        state.active = whole


class Maker:
    """Draws instructions."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def body(self, number: int) -> list[Set | Region]:
        """So many instructions, some of them with regions."""
        return [self._region() if not self.draw.randrange(5) else self._one(warp=True)
                for _ in range(number)]  # fmt: skip

    def _region(self) -> Region:
        arms = [[self._one(warp=False) for _ in range(self.draw.randrange(1, 4))] for _ in range(2)]
        return Region(self._guard(), arms[0], arms[1] if self.draw.randrange(2) else [])

    def _guard(self) -> Guard:
        predicate = self.draw.choice([*_FIXED, *_PREDICATES])
        return Guard(predicate, not self.draw.randrange(3))

    def _source(self) -> str | int:
        if not self.draw.randrange(4):
            return self.draw.choice([0, 1, 2, 3, 5, 7, self.draw.randrange(1_000)])
        return self.draw.choice([*_REGISTERS, *_REGISTERS, "%i", "%i", "%lane", "%c"])

    def _one(self, *, warp: bool) -> Set:
        """One instruction; ``warp``: also one that all threads of a warp execute together."""
        draw = self.draw
        register, predicate = draw.choice(_REGISTERS), draw.choice(_PREDICATES)
        guard = self._guard() if draw.randrange(2) else None
        a, b = self._source(), self._source()
        match draw.randrange(13 if warp else 11):
            case 0 | 1 | 2:
                return Set(f"mov.u32 {register}, {a};", register, lambda s: s.of(a), guard)
            case 3 | 4:
                a = draw.choice([*_REGISTERS, "%i"])
                opcode = draw.choice(["add.u32", "add.u32", "sub.u32", *_ARITHMETIC])
                compute = _ARITHMETIC[opcode]
                text = f"{opcode} {register}, {a}, {b};"
                return Set(text, register, lambda s: compute(s.of(a), s.of(b)), guard)
            case 5 | 6:
                by = draw.choice([*_FIXED, *_PREDICATES])
                text = f"selp.u32 {register}, {a}, {b}, {by};"
                return Set(text, register, lambda s: np.where(s.of(by), s.of(a), s.of(b)), guard)
            case 7 | 8 | 9:
                return self._setp(predicate, guard)
            case 10:
                text = f"ld.shared.u32 {register}, [%r14];"
                return Set(text, register, lambda s: s.of("box"), guard)
            case 11:
                source, other = draw.choice([*_REGISTERS, "%i"]), draw.choice([1, 2, 16])
                text = f"shfl.sync.bfly.b32 {register}, {source}, {other}, 31, -1;"
                lanes = np.arange(64) ^ other
                return Set(text, register, lambda s: s.of(source)[:, lanes[: s.active.shape[1]]])
            case _:
                of = draw.choice([*_FIXED, *_PREDICATES])
                text = f"vote.sync.any.pred {predicate}, {of}, -1;"
                return Set(text, predicate, lambda s: _any(s.of(of)))

    def _setp(self, predicate: str, guard: Guard | None) -> Set:
        draw = self.draw
        a, b = draw.choice([*_REGISTERS, "%i"]), self._source()
        if draw.randrange(2):
            b = draw.randrange(TURNS // 4)
        name = draw.choice([*_COMPARED])
        compare = _COMPARED[name]
        if draw.randrange(2):
            text = f"setp.{name}.u32 {predicate}, {a}, {b};"
            return Set(text, predicate, lambda s: compare(s.of(a), s.of(b)), guard)
        how, other = draw.choice([*_JOINED]), draw.choice([*_FIXED, *_PREDICATES])
        join = _JOINED[how]
        text = f"setp.{name}.{how}.u32 {predicate}, {a}, {b}, {other};"
        return Set(
            text, predicate, lambda s: join(compare(s.of(a), s.of(b)), s.of(other)), guard
        )  # fmt: skip


def _any(holds: _Lanes) -> _Lanes:
    warps = holds.reshape(len(holds), -1, 32)
    return np.broadcast_to(warps.any(axis=2, keepdims=True), warps.shape).reshape(holds.shape)


class GuardedProgram:
    """The program of a number, for all values of ``n``, how many turns there are."""

    #: no lines of Python ask for values
    written_in_python: ClassVar[bool] = False

    def __init__(self, number: int) -> None:
        self.number = number
        draw = random.Random(number)
        self.ctas, self.threads = draw.choice([1, 1, 1, 3]), draw.choice([32, 32, 64])
        maker, self.boxed = Maker(draw), draw.randrange(TURNS)
        self.before = maker.body(draw.randrange(2, 8))
        self.after = maker.body(draw.randrange(2, 6))
        self.tested, self.kind = draw.choice(_REGISTERS), draw.choice([*FAULTS])
        #: a turn of which the condition holds for one thread
        turn, thread = draw.randrange(80, 400), draw.randrange(self.threads)
        self.constant = int(self._tested()[turn, draw.randrange(self.ctas), thread])
        if not draw.randrange(6):
            self.constant = draw.randrange(TURNS)

    def _tested(self) -> _Lanes:
        """What is compared in each turn: (turns, ctas, threads)."""
        state, found = State(self.ctas, self.threads, self.boxed), []
        with np.errstate(over="ignore"):
            for _ in range(TURNS):
                for one in self.before:
                    one.run(state)
                found.append(state.of(self.tested))
                for one in self.after:
                    one.run(state)
                state.values["%i"] = state.of("%i") + np.uint32(1)
        return np.stack(found)

    @cached_property
    def first(self) -> int | None:
        """The least ``n`` that fails, of those that are interpreted."""
        turns = np.flatnonzero((self._tested() == self.constant).any(axis=(1, 2)))
        return int(turns[0]) + 1 if len(turns) else None

    @property
    def marks(self) -> frozenset[int]:
        """Values beside which it is worth a look."""
        return frozenset() if self.first is None else frozenset({self.first})

    @property
    def rule(self) -> str:
        """What it fails with."""
        return FAULTS[self.kind][1]

    @cached_property
    def text(self) -> str:
        """The PTX."""
        before, after = (
            "".join(one.lines(f"{name}{n}") for n, one in enumerate(body))
            for name, body in (("B", self.before), ("A", self.after))
        )
        return _TEXT.format(
            threads=self.threads, before=before, after=after, tested=self.tested,
            constant=self.constant, fault=FAULTS[self.kind][0], boxed=self.boxed,
        )  # fmt: skip

    def __call__(self, n: Any) -> Mir:
        """The program for so many turns."""
        module = read(self.text, "guarded.ptx")
        scalar = Scalar("n", "u32", n)
        launch = Launch(
            "guarded", (self.ctas, 1, 1), (self.threads, 1, 1), (1, 1, 1), 0, params=(scalar,)
        )
        return lower(module, module.entries[0], launch)

    def wrong(self, n: int, verdict: str, rules: frozenset[str]) -> str:
        """What is wrong with what is said of ``n``, if anything is; nothing said is not wrong."""
        fails = self.first is not None and n >= self.first
        if verdict in ("proved", "exhausted") and fails:
            return f"said {verdict}, but turn {self.first} fails"
        if verdict == "failed" and not fails:
            return f"said failed ({', '.join(sorted(rules))}), and is right"
        if verdict == "failed" and self.rule not in rules:
            return f"fails with {self.rule}, not with {', '.join(sorted(rules))}"
        return ""
