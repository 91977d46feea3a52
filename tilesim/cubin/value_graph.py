"""What the values of registers are computed from: a graph of terms, back through what wrote them.

A node is what is asked or read; its plan is a term and the nodes that the term reads. Where paths
meet, a node is one of several, each with what the branches before it say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeGuard

from tilesim.cubin.arithmetic import (
    ANY,
    Term,
    below,
    both,
    computed,
    constant,
    negated,
    number,
    read,
    reads,
    source,
)
from tilesim.cubin.operands import WORD, Register, parse
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.cubin.values import MOST_VALUES, Values, as_set, bits_of
from tilesim.cubin.versions import Initial, Meeting, Version, Versions, Written
from tilesim.records import dataclass

#: versions in a chain of terms
_MOST_DEEP = 40
#: conditions of branches before a place that are looked at
MOST_CONDITIONS = 8

#: what is known of a register, special register or word of a constant bank: its name (``R5``,
#: ``UR4``, ``P0``, ``SR_TID.X``, ``c[0x0][0x210]``) and the place that reads it; None is not known
Known = Callable[[str, int], Collection[int] | None]

#: special registers of which not each value is possible
_LIMITS: Mapping[str, int] = {
    "SR_TID.X": 1024,
    "SR_TID.Y": 1024,
    "SR_TID.Z": 64,
    "SR_LANEID": 32,
    "SR_CgaCtaId": 16,
}
#: beginnings of what does not change while a thread runs
_FIXED = ("SR_TID", "SR_CTAID", "SR_LANEID", "SR_Cga", "c[")
#: what a term reads beside registers: what the register held before, what a thread has of those in
#: which the guard is true, what another thread has, a vote; at the beginning of a loop, turns of it
_OLD, _SOME, _SHARED, _VOTE = "(old)", "(some)", "(shared)", "(vote)"
FIRST, TURNS = "(first)", "(turns)"


@dataclass(frozen=True)
class Given:
    """What the caller knows of something, or what is known of a special register. ``pc`` is the
    place that reads it, or -1 of what is the same at each place."""

    name: str
    values: Values
    pc: int


@dataclass(frozen=True)
class Asked:
    """A term at a place."""

    term: Term
    pc: int


@dataclass(frozen=True)
class Vote:
    """Whether a predicate is true (``sign`` ``!``: false) in all threads of the warp that execute
    the block that begins at ``pc``; it may be so or not."""

    predicate: Version | Given
    sign: str
    pc: int


@dataclass(frozen=True)
class OfSome:
    """A term in a thread of the warp in which a guard is true, which may be another thread."""

    asked: Asked
    guard: Asked


@dataclass(frozen=True)
class Turns:
    """How many times a loop that begins at ``pc`` has begun again; ``next``: and once more."""

    pc: int
    next: bool = False


Node = Version | Given | Asked | Vote | OfSome | Turns


@dataclass(frozen=True)
class Plan:
    """How a node is computed: a term, and the nodes that it reads by name. ``opaque``: its values,
    where no term is known. ``depth``: of the chain of terms that ends here."""

    term: Term | None
    sources: Mapping[str, Node]
    opaque: Values
    depth: int = 0


@dataclass(frozen=True)
class Condition:
    """A predicate, as a node, that is true or false where a path has come along."""

    node: Node
    holds: bool


class ValueGraph:
    """The nodes of a function's values, each planned when it is first needed."""

    def __init__(self, function: Function, known: Known | None = None) -> None:
        self.function = function
        self.versions = Versions(function)
        self.plans: dict[Node, Plan] = {}
        self._known = known

    def _source(self, name: str, pc: int) -> Version | Given:
        """What is read by a name at a place."""
        place = -1 if name.startswith(_FIXED) else pc
        if self._known is not None:
            values = self._known(name, pc)
            if values is not None:
                given = frozenset(value & WORD for value in values)
                few = len(given) <= MOST_VALUES
                return Given(name, given if few else bits_of(given), place)
        if name.startswith(("SR_", "c[")):
            limit = _LIMITS.get(name)
            return Given(name, ANY if limit is None else as_set(below(limit)), place)
        found = self.versions.version(name, pc)
        return Initial(name) if found is None else found

    def add(self, node: Node) -> Node:
        """Plans a node and all nodes that its chain of terms needs."""
        todo = [node]
        while todo:
            one = todo[-1]
            if one in self.plans:
                todo.pop()
                continue
            term, sources, opaque = self._made(one)
            missing = [source for source in sources.values() if source not in self.plans]
            if missing:
                todo += missing
                continue
            depth = 1 + max((self.plans[s].depth for s in sources.values()), default=0)
            self.plans[one] = Plan(term, sources, opaque, 0 if depth > _MOST_DEEP else depth)
            todo.pop()
        return node

    def _made(self, node: Node) -> tuple[Term | None, dict[str, Node], Values]:
        if isinstance(node, Given):
            return None, {}, node.values
        if isinstance(node, Asked):
            term, pc = node.term, node.pc
            return term, {name: self._source(name, pc) for name in reads(term)}, ANY
        if isinstance(node, Vote):
            return None, {}, frozenset({0, 1})
        if isinstance(node, OfSome):
            return None, {}, ANY
        if isinstance(node, Turns):
            turns = {TURNS: Turns(node.pc)}
            return (
                (sum_of(read(TURNS), constant(1)), {**turns}, ANY) if node.next else (None, {}, ANY)
            )
        opaque: Values = frozenset({0, 1}) if is_predicate(node) else ANY
        if isinstance(node, Meeting):
            counter = self._counter(node)
            if counter is None:
                return None, {}, opaque
            first, step = counter
            turns_of = Term("mul", (read(TURNS), constant(step)))
            return sum_of(read(FIRST), turns_of), {FIRST: first, TURNS: Turns(node.pc)}, ANY
        if isinstance(node, Initial):
            return None, {}, opaque
        pc, one = node.pc, self.function.code[node.pc]
        made = self._result(one, node)
        if made is None:
            return None, {}, opaque
        result, sources = made
        if not one.guard:
            return result, sources, opaque
        guard = source(one.guard)
        old = self.versions.version(node.register, pc)
        assert guard is not None
        assert old is not None
        if node.register.startswith("UR") and "UP" not in one.guard:
            # one register for all threads: it is written if the guard is true in any of them
            any_thread, sources = self._vote(("ANY",), one.guard, pc)
            sources |= {_SOME: OfSome(Asked(result, pc), Asked(guard, pc)), _OLD: old}
            return Term("select", (any_thread, read(_SOME), read(_OLD))), sources, opaque
        sources |= {name: self._source(name, pc) for name in reads(guard)} | {_OLD: old}
        return Term("select", (guard, result, read(_OLD))), sources, opaque

    def _result(self, one: Instruction, node: Written) -> tuple[Term, dict[str, Node]] | None:
        """What an instruction writes into a register, without its guard; None: not known."""
        if (
            one.base in ("VOTE", "VOTEU")
            and one.operands[0] == node.register
            and (is_predicate(node) and {"ALL", "ANY"} & {*one.modifiers})
        ):  # a register has a bit for each thread; ``EQ``: all are the same
            return self._vote(one.modifiers, one.operands[1], node.pc)
        if one.base == "SHFL" and one.operands[1] == node.register:
            shared = source(one.operands[2])
            if shared is None:
                return None
            asked = Asked(shared, node.pc)
            return read(_SHARED), {_SHARED: OfSome(asked, Asked(constant(1), node.pc))}
        result = None if one.base == "CALL" else computed(one, node.register)
        if result is None:
            return None
        return result, {name: self._source(name, node.pc) for name in reads(result)}

    def _vote(self, how: Collection[str], text: str, pc: int) -> tuple[Term, dict[str, Node]]:
        """Whether a predicate is true in all threads of the warp, or in any."""
        one = parse(text)
        if not isinstance(one, Register) or one.name in ("PT", "UPT"):
            return read(_VOTE), {_VOTE: Given(_VOTE, frozenset({0, 1}), pc)}
        of, sign = self._source(one.name, pc), one.sign
        if "ALL" in how:
            return read(_VOTE), {_VOTE: Vote(of, sign, self.versions.start(pc))}
        if isinstance(of, Written) and not sign and self._elects(of):
            return constant(1), {}
        other = Vote(of, "" if sign else "!", self.versions.start(pc))
        return negated(read(_VOTE)), {_VOTE: other}

    def _elects(self, node: Written) -> bool:
        """Whether a predicate is that of ``ELECT``, which is true in one of the threads: its guard
        must be true in any of them. ptxas guards that of a loop over threads by those that are
        left: a predicate that is true at first, and by which the loop goes on."""
        one = self.function.code[node.pc]
        if one.opcode != "ELECT" or not one.guard:
            return one.opcode == "ELECT"
        left = self.versions.version(one.guard, node.pc)
        if not isinstance(left, Meeting):
            return False
        for pc, version in self.versions.met(left):
            branch = self.function.code.get(pc)
            goes_on = (
                branch is not None
                and branch.opcode == "BRA.U.ANY"
                and branch.guard == one.guard
                and branch.target == left.pc
            )
            if not goes_on and not self._is_true(version):
                return False
        return True

    def _is_true(self, node: Version) -> bool:
        """Whether an instruction makes a predicate true."""
        if not isinstance(node, Written) or self.function.code[node.pc].guard:
            return False
        term = computed(self.function.code[node.pc], node.register)
        return term is not None and not reads(term) and number(term, {}) == 1

    def _counter(self, node: Meeting) -> tuple[Version, int] | None:
        """What a register held before a loop that adds the same number to it in each turn, and that
        number; None of others."""
        met = self.versions.met(node)
        again = [one for one in met if self.versions.dominates(node.pc, one[0])]
        before = [version for one in met if one not in again for version in one[1:]]
        if "P" in node.register or len(before) != 1 or not again:
            return None
        steps = {self._step(version, node) for _, version in again}
        step = steps.pop()
        return None if steps or not step else (before[0], step)

    def _step(self, version: Version, to: Meeting) -> int | None:
        """The number that is added to one version to make another; None if it is not so made."""
        total = 0
        for _ in range(_MOST_DEEP):
            if version == to:
                return total & WORD
            if not isinstance(version, Written) or self.function.code[version.pc].guard:
                return None
            one = self.function.code[version.pc]
            term = None if one.base == "CALL" else computed(one, version.register)
            if term is not None and term.op == "add" and term.of[-1].op == "constant":
                total += term.of[-1].number
                term = term.of[0] if len(term.of) == 2 else None
            if term is None or term.op != "read" or term.name.startswith(("SR_", "c[")):
                return None
            found = self.versions.version(term.name, version.pc)
            assert found is not None
            version = found
        return None

    def conditions_at(self, pc: int) -> list[Condition]:
        """What branches say on the only path to a place, the nearest first."""
        found: list[Condition] = []
        start = self.versions.start(pc)
        for _ in range(MOST_CONDITIONS):
            leading = self.versions.before(start)
            if len(leading) != 1 or leading[0] < 0:
                break
            found += self._condition(leading[0], start)
            start = self.versions.start(leading[0])
        return found

    def _condition(self, branch: int, to: int) -> list[Condition]:
        """What the last instruction of a block says when its path goes on at ``to``."""
        one = self.function.code[branch]
        following = branch + WIDTH
        guards = [source(text) for text in (one.guard, *one.operands[:-1]) if text]
        if one.base == "EXIT":
            guards = [source(text) for text in (one.guard, *one.operands) if text]
        terms = [guard for guard in guards if guard is not None]
        if not terms or len(terms) != len(guards) or {*one.modifiers} & {"ANY", "DIV", "CONV"}:
            return []
        taken = terms[0]
        for other in terms[1:]:
            taken = both(taken, other)
        node = Asked(taken, branch)
        if one.base == "BRA" and one.target not in (None, following):
            return [Condition(self.add(node), to == one.target)]
        return [Condition(self.add(node), False)] if one.base == "EXIT" else []

    def met(self, node: Meeting | Turns) -> list[tuple[Node, list[Condition]]]:
        """What meets, each with what branches say on its path and bears on it."""
        found: list[tuple[Node, list[Condition]]] = []
        versions: list[tuple[int, Node]]
        if isinstance(node, Meeting):
            versions = [*self.versions.met(node)]
        else:
            zero = Given(TURNS, frozenset({0}), node.pc)
            versions = [
                (pc, Turns(node.pc, True) if self.versions.dominates(node.pc, pc) else zero)
                for pc in self.versions.before(node.pc)
            ]
        for pc, version in versions:
            self.add(version)
            if pc < 0:
                found.append((version, []))
                continue
            conditions = [*self._condition(pc, node.pc), *self.conditions_at(pc)]
            leaves = self._leaves(version)
            kept = []
            for one in conditions[:MOST_CONDITIONS]:
                own = self._leaves(one.node)
                if own & leaves or all(isinstance(leaf, Given) for leaf in own):
                    kept.append(one)
                    leaves |= own
            found.append((version, kept))
        return found

    def _leaves(self, node: Node) -> frozenset[Node]:
        """The nodes at which its chain of terms begins."""
        found: set[Node] = set()
        seen: set[Node] = set()
        todo = [node]
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            plan = self.plans[one]
            if plan.term is None or (plan.depth == 0 and one != node):
                found.add(one)
            else:
                todo += plan.sources.values()
        return frozenset(found)

    def meets_at(self, node: Node) -> TypeGuard[Meeting | Turns]:
        """Whether a node is where paths meet, and no counter."""
        return self.plans[node].term is None and isinstance(node, Meeting | Turns)


def sum_of(*parts: Term) -> Term:
    """The sum of terms."""
    return Term("add", parts)


def is_predicate(node: Node) -> bool:
    """Whether a node is what a predicate holds."""
    return isinstance(node, Written | Meeting | Initial) and "P" in node.register
