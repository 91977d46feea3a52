"""The values that a register can have at a place: all of them, or None where too many are possible.

A value is followed back through what wrote it (`versions`), as the terms that instructions compute
(`arithmetic`). Where all that a term depends on has few values it is computed for each combination,
with the conditions of the branches that lead there; else the bits that are known are followed. What
meets in a loop is taken to a fixpoint. Registers are those of one thread: what a uniform register
holds is what the thread whose path is followed has put there.

What is returned contains every value that the register can have, when nvdisasm's text means what
`arithmetic` says, the caller's values are right, and the code is that of `Function`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Literal

from tilesim.cubin.arithmetic import (
    ANY,
    BOOLEAN,
    Bits,
    Term,
    below,
    bits,
    computed,
    constant,
    exactly,
    joined,
    number,
    predicate,
    read,
    reads,
)
from tilesim.cubin.operands import WORD, Register, mbarrier_operand, parse
from tilesim.cubin.sass import WIDTH, Function
from tilesim.cubin.versions import Initial, Meeting, Version, Versions, Written
from tilesim.records import dataclass

#: values of a set at most
MOST_VALUES = 64
#: combinations of values for which a term is computed
_MOST_COMBINATIONS = 512
#: versions in a chain of terms
_MOST_DEEP = 40
#: conditions of branches before a place that are looked at
_MOST_CONDITIONS = 8
#: rounds of a fixpoint
_MOST_ROUNDS = 200
#: versions that one question may lead to
_MOST_VERSIONS = 20_000

#: what is known of a register, special register or word of a constant bank: its name (``R5``,
#: ``UR4``, ``P0``, ``SR_TID.X``, ``c[0x0][0x210]``) and the place that reads it; None is not known
Known = Callable[[str, int], Collection[int] | None]
Values = frozenset[int] | Bits

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
#: which the guard is true, a vote
_OLD, _SOME, _VOTE = "(old)", "(some)", "(vote)"


@dataclass(frozen=True)
class _Given:
    """What the caller knows of something, or what is known of a special register. ``pc`` is the
    place that reads it, or -1 of what is the same at each place."""

    name: str
    values: Values
    pc: int


@dataclass(frozen=True)
class _Asked:
    """A term at a place."""

    term: Term
    pc: int


@dataclass(frozen=True)
class _Vote:
    """Whether a predicate is true (``sign`` ``!``: false) in all threads of the warp that execute
    the block that begins at ``pc``; it may be so or not."""

    predicate: Version | _Given
    sign: str
    pc: int


@dataclass(frozen=True)
class _OfSome:
    """A term in a thread of the warp in which a guard is true, which may be another thread."""

    asked: _Asked
    guard: _Asked


_Node = Version | _Given | _Asked | _Vote | _OfSome


@dataclass(frozen=True)
class _Plan:
    """How a node is computed: a term, and the nodes that it reads by name. ``opaque``: its values,
    where no term is known. ``depth``: of the chain of terms that ends here."""

    term: Term | None
    sources: Mapping[str, _Node]
    opaque: Values
    depth: int = 0


@dataclass(frozen=True)
class _Condition:
    """A predicate, as a node, that is true or false where a path has come along."""

    node: _Node
    holds: bool


class ValueSets:
    """The values of a function's registers, with what the caller knows."""

    def __init__(self, function: Function, known: Known | None = None) -> None:
        """``known`` is asked first for all that is read at a place; it must give each value that
        can be there, in the threads that the caller has in mind."""
        self.function = function
        self._known = known
        self._versions = Versions(function)
        self._plans: dict[_Node, _Plan] = {}
        self._solved: dict[_Node, Values] = {}
        self._current: dict[_Node, Values] = {}
        self._meets: dict[Meeting, list[tuple[_Node, list[_Condition]]]] = {}

    # ------------------------------------------------------------------ questions

    def value(self, register: str, pc: int) -> frozenset[int] | None:
        """The values that a register or predicate can have just before the instruction at ``pc``
        in a thread that executes it; None: more than 64, or nothing leads there."""
        return self.term(read(register), pc)

    def address(self, pc: int) -> frozenset[int] | None:
        """The addresses of the mbarrier that the instruction at ``pc`` works on, as `value`; None
        if it works on none."""
        operand = mbarrier_operand(self.function.code[pc])
        if operand is None:
            return None
        parts = [read(name) for name in operand.registers]
        return self.term(Term("add", (*parts, constant(operand.offset))), pc)

    def term(self, term: Term, pc: int) -> frozenset[int] | None:
        """The values of a term at a place, as `value`."""
        if self.function.unknown or self._versions.version("R0", pc) is None:
            return None
        asked = _Asked(term, pc)
        conditions = self._conditions_at(pc)
        guard = predicate(self.function.code[pc].guard) if self.function.code[pc].guard else None
        if guard is not None:
            conditions = [_Condition(self._add(_Asked(guard, pc)), True), *conditions]
        if not self._solve([asked, *(one.node for one in conditions)]):
            return None
        found = self._under(asked, conditions)
        return found if isinstance(found, frozenset) else None

    # ------------------------------------------------------------------ nodes

    def _source(self, name: str, pc: int) -> Version | _Given:
        """What is read by a name at a place."""
        place = -1 if name.startswith(_FIXED) else pc
        if self._known is not None:
            values = self._known(name, pc)
            if values is not None:
                given = frozenset(value & WORD for value in values)
                few = len(given) <= MOST_VALUES
                return _Given(name, given if few else _bits_of(given), place)
        if name.startswith(("SR_", "c[")):
            limit = _LIMITS.get(name)
            return _Given(name, ANY if limit is None else _as_set(below(limit)), place)
        found = self._versions.version(name, pc)
        return Initial(name) if found is None else found

    def _add(self, node: _Node) -> _Node:
        """Plans a node and all nodes that its chain of terms needs."""
        todo = [node]
        while todo:
            one = todo[-1]
            if one in self._plans:
                todo.pop()
                continue
            term, sources, opaque = self._made(one)
            missing = [source for source in sources.values() if source not in self._plans]
            if missing:
                todo += missing
                continue
            depth = 1 + max((self._plans[s].depth for s in sources.values()), default=0)
            self._plans[one] = _Plan(term, sources, opaque, 0 if depth > _MOST_DEEP else depth)
            todo.pop()
        return node

    def _made(self, node: _Node) -> tuple[Term | None, dict[str, _Node], Values]:
        if isinstance(node, _Given):
            return None, {}, node.values
        if isinstance(node, _Asked):
            term, pc = node.term, node.pc
            return term, {name: self._source(name, pc) for name in reads(term)}, ANY
        if isinstance(node, _Vote):
            return None, {}, frozenset({0, 1})
        if isinstance(node, _OfSome):
            return None, {}, ANY
        opaque: Values = frozenset({0, 1}) if "P" in node.register else ANY
        if not isinstance(node, Written):
            return None, {}, opaque
        pc, one = node.pc, self.function.code[node.pc]
        if one.base in ("VOTE", "VOTEU") and one.operands[0] == node.register and not one.guard:
            return *self._vote(one.modifiers, one.operands[1], pc), opaque
        result = None if one.base == "CALL" else computed(one, node.register)
        if result is None:
            return None, {}, opaque
        if not one.guard:
            return result, {name: self._source(name, pc) for name in reads(result)}, opaque
        guard = predicate(one.guard)
        assert guard is not None
        old = self._versions.version(node.register, pc)
        assert old is not None
        if node.register.startswith("UR") and "UP" not in one.guard:
            # one register for all threads: it is written if the guard is true in any of them
            any_thread, sources = self._vote(("ANY",), one.guard, pc)
            sources |= {_SOME: _OfSome(_Asked(result, pc), _Asked(guard, pc)), _OLD: old}
            return Term("select", (any_thread, read(_SOME), read(_OLD))), sources, opaque
        result = Term("select", (guard, result, read(_OLD)))
        sources = {name: self._source(name, pc) for name in reads(result) if name != _OLD}
        return result, {**sources, _OLD: old}, opaque

    def _vote(self, how: Collection[str], text: str, pc: int) -> tuple[Term, dict[str, _Node]]:
        """Whether a predicate is true in all threads of the warp, or in any."""
        one = parse(text)
        if not isinstance(one, Register) or one.name in ("PT", "UPT"):
            return read(_VOTE), {_VOTE: _Given(_VOTE, frozenset({0, 1}), pc)}
        of, sign = self._source(one.name, pc), one.sign
        if "ALL" in how:
            return read(_VOTE), {_VOTE: _Vote(of, sign, self._versions.start(pc))}
        elected = isinstance(of, Written) and self.function.code[of.pc].opcode == "ELECT"
        if elected and not sign and isinstance(of, Written) and not self.function.code[of.pc].guard:
            return constant(1), {}
        other = _Vote(of, "" if sign else "!", self._versions.start(pc))
        return Term("lut", (read(_VOTE), constant(1), constant(0)), 0x3C), {_VOTE: other}

    def _conditions_at(self, pc: int) -> list[_Condition]:
        """What branches say on the only path to a place, the nearest first."""
        found: list[_Condition] = []
        start = self._versions.start(pc)
        for _ in range(_MOST_CONDITIONS):
            leading = self._versions.before(start)
            if len(leading) != 1 or leading[0] < 0:
                break
            found += self._condition(leading[0], start)
            start = self._versions.start(leading[0])
        return found

    def _condition(self, branch: int, to: int) -> list[_Condition]:
        """What the last instruction of a block says when its path goes on at ``to``."""
        one = self.function.code[branch]
        following = branch + WIDTH
        if not one.guard or (one.base == "BRA" and len(one.operands) > 1):
            return []
        guard = predicate(one.guard)
        assert guard is not None
        if (
            one.base == "BRA"
            and one.target not in (None, following)
            and not ({*one.modifiers} & {"ANY", "DIV", "CONV"})
        ):
            return [_Condition(self._add(_Asked(guard, branch)), to == one.target)]
        if one.base == "EXIT" and to == following and not one.operands:
            return [_Condition(self._add(_Asked(guard, branch)), False)]
        return []

    def _met(self, node: Meeting) -> list[tuple[_Node, list[_Condition]]]:
        """What meets, each with what branches say on its path and bears on it."""
        found: list[tuple[_Node, list[_Condition]]] = []
        for pc, version in self._versions.met(node):
            self._add(version)
            if pc < 0:
                found.append((version, []))
                continue
            conditions = [*self._condition(pc, node.pc), *self._conditions_at(pc)]
            leaves = self._leaves(version)
            kept = []
            for one in conditions[:_MOST_CONDITIONS]:
                own = self._leaves(one.node)
                if own & leaves or all(isinstance(leaf, _Given) for leaf in own):
                    kept.append(one)
                    leaves |= own
            found.append((version, kept))
        return found

    def _leaves(self, node: _Node) -> frozenset[_Node]:
        """The nodes at which its chain of terms begins."""
        found: set[_Node] = set()
        seen: set[_Node] = set()
        todo = [node]
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            plan = self._plans[one]
            if plan.term is None or (plan.depth == 0 and one != node):
                found.add(one)
            else:
                todo += plan.sources.values()
        return frozenset(found)

    # ------------------------------------------------------------------ fixpoint

    def _solve(self, roots: Iterable[_Node]) -> bool:
        """Finds the values of nodes and of all that they need; False if that is too much."""
        needs: dict[_Node, list[_Node]] = {}
        todo = [self._add(root) for root in roots]
        while todo:
            node = todo.pop()
            if node in needs or node in self._solved:
                continue
            if isinstance(node, Meeting):
                met = self._meets.get(node)
                if met is None:
                    met = self._meets[node] = self._met(node)
                needs[node] = [
                    each for one, conditions in met for each in (one, *(c.node for c in conditions))
                ]
            elif isinstance(node, _OfSome):
                needs[node] = [self._add(node.asked), self._add(node.guard)]
            else:
                needs[node] = list(self._plans[node].sources.values())
            todo += needs[node]
            if len(needs) > _MOST_VERSIONS:
                return False
        for group in _components(needs):
            self._fixpoint(group)
        return True

    def _fixpoint(self, group: list[_Node]) -> None:
        """The values of nodes that need each other, of which all others are known."""
        for node in group:
            self._current[node] = frozenset()
        counts_up = self._counts_up(group)
        for _ in range(_MOST_ROUNDS):
            changed = False
            for node in group:
                old = self._current[node]
                new = _join(old, self._transfer(node))
                if isinstance(node, Meeting) and isinstance(new, Bits):
                    new = _low_bits(new)
                if counts_up and isinstance(new, Bits):
                    new = Bits(new.zeros | 1 << 31, new.ones & ~(1 << 31))
                changed |= new != old
                self._current[node] = new
            if not changed:
                break
        else:
            for node in group:
                self._current[node] = BOOLEAN if _is_predicate(node) else ANY
        for node in group:
            self._solved[node] = self._current.pop(node)

    def _counts_up(self, group: list[_Node]) -> bool:
        """Whether nodes that need each other are a counter that begins at numbers below 2^31 and
        goes up by less than 2^16: it is taken not to come to 2^31, as no int does."""
        if len(group) < 2:
            return False
        inside = set(group)
        for node in group:
            if isinstance(node, Meeting):
                sources = [one for one, _ in self._meets[node]]
            else:
                plan = self._plans[node]
                if plan.term is None or not _goes_up(plan.term):
                    return False
                sources = list(plan.sources.values())
            for source in sources:
                if source in inside or _is_predicate(source):
                    continue
                values = self._values(source)
                known = values if isinstance(values, Bits) else _bits_of(values)
                if not known.zeros >> 31:
                    return False
        return True

    def _values(self, node: _Node) -> Values:
        found = self._current.get(node)
        return self._solved[node] if found is None else found

    def _transfer(self, node: _Node) -> Values:
        if isinstance(node, Meeting):
            found: Values = frozenset()
            for one, conditions in self._meets[node]:
                found = _join(found, self._under(one, conditions))
            return found
        if isinstance(node, _OfSome):
            return self._under(node.asked, [_Condition(node.guard, True)])
        plan = self._plans[node]
        return plan.opaque if plan.term is None else self._under(node, [])

    def _under(self, node: _Node, conditions: list[_Condition]) -> Values:
        """The values of a node where conditions hold."""
        for count in range(len(conditions), -1, -1):
            held = conditions[:count]
            found = self._combined(node, held)
            if found is not None:
                return found
        plan = self._plans[node]
        if plan.term is None or node in self._solved:
            return self._values(node)
        sources = {name: self._values(source) for name, source in plan.sources.items()}
        if any(not one for one in sources.values() if isinstance(one, frozenset)):
            return frozenset()
        few = self._remainder(plan) or self._by_low_bits(node)
        if few is not None:
            return few
        known = {
            name: one if isinstance(one, Bits) else _bits_of(one) for name, one in sources.items()
        }
        return _as_set(bits(plan.term, known))

    def _combined(self, node: _Node, conditions: list[_Condition]) -> Values | None:
        """The values of a node, computed for each combination of those that it depends on where the
        conditions hold; None if these are too many."""
        roots = [node, *(one.node for one in conditions)]
        kinds: dict[_Node, _Kind] = {}
        if self._plans[node].term is not None and node not in self._solved:
            for source in self._plans[node].sources.values():
                self._kind(source, kinds)
            kinds[node] = "inner"  # its own values are what is asked
        leaves: dict[_Node, tuple[int | None, ...]] = {}
        inner: list[_Node] = []
        for root in roots:
            self._kind(root, kinds)
            self._gather(root, kinds, leaves, inner)
        combinations = 1
        for values in leaves.values():
            combinations *= len(values)
        if combinations > _MOST_COMBINATIONS:
            return None
        steps = [(one, self._plans[one]) for one in inner]
        found: set[int] = set()
        for chosen in product(*leaves.values()):
            at: dict[_Node, int | None] = dict(zip(leaves, chosen, strict=True))
            for one, plan in steps:
                assert plan.term is not None
                at[one] = number(plan.term, {n: at[source] for n, source in plan.sources.items()})
            if all(at[one.node] in (None, one.holds) for one in conditions):
                value = at[node]
                if value is None:
                    return None
                found.add(value)
        return frozenset(found) if len(found) <= MOST_VALUES else _bits_of(found)

    def _kind(self, node: _Node, kinds: dict[_Node, _Kind]) -> _Kind:
        """How a node is computed for combinations of values."""
        known = kinds.get(node)
        if known is not None:
            return known
        plan = self._plans[node]
        kind: _Kind = "many"
        if plan.term is not None and plan.depth:
            inside = [self._kind(source, kinds) for source in plan.sources.values()]
            kind = "partly" if {"many", "partly"} & {*inside} else "inner"
        if kind != "inner" and isinstance(self._values(node), frozenset):
            kind = "leaf"
        kinds[node] = kind
        return kind

    def _gather(
        self,
        node: _Node,
        kinds: Mapping[_Node, _Kind],
        leaves: dict[_Node, tuple[int | None, ...]],
        inner: list[_Node],
    ) -> None:
        """Leaves and inner nodes of a node, each inner one behind what it reads."""
        todo, seen = [(node, False)], {*leaves, *inner}
        while todo:
            one, done = todo.pop()
            if done:
                inner.append(one)
            elif one not in seen:
                seen.add(one)
                if kinds[one] in ("inner", "partly"):
                    todo.append((one, True))
                    todo += [(source, False) for source in self._plans[one].sources.values()]
                else:
                    values = self._values(one)
                    few = kinds[one] == "leaf" and isinstance(values, frozenset)
                    leaves[one] = tuple(sorted(values)) if few else (None,)

    # ------------------------------------------------------------------ remainders

    def _remainder(self, plan: _Plan) -> frozenset[int] | None:
        """The values of ``x - c * (x / c)``, as compilers divide by a number that they know."""
        term = plan.term
        if term is None or term.op != "add" or len(term.of) != 2:
            return None
        for multiple, rest in (term.of, term.of[::-1]):
            if multiple.op != "mul" or rest.op != "read":
                continue
            for quotient, factor in (multiple.of, multiple.of[::-1]):
                by = self._only(factor, plan)
                if quotient.op != "read" or by is None:
                    continue
                divisor = -by & WORD
                whole = self._copied(plan.sources[rest.name])
                of = self._copied(plan.sources[quotient.name])
                if 2 <= divisor <= MOST_VALUES and self._is_quotient(of, whole, divisor):
                    return frozenset(range(divisor))
        return None

    def _is_quotient(self, node: _Node, whole: _Node, divisor: int) -> bool:
        """Whether a node is ``whole / divisor``, rounded down, for each ``whole`` of 32 bits: the
        high half of a product with 2^(32+n) / divisor, rounded up, shifted right by n (Granlund,
        Montgomery: Division by Invariant Integers using Multiplication, theorem 4.2)."""
        plan, shift = self._plans[node], 0
        term = plan.term
        if term is not None and term.op == "shr" and term.of[0].op == "read":
            if term.of[1].op != "constant":
                return False
            shift = term.of[1].number
            plan = self._plans[self._copied(plan.sources[term.of[0].name])]
            term = plan.term
        zero = constant(0)
        if term is None or term.op != "high" or term.of[2:] != (zero, zero):
            return False
        for one, factor in (term.of[:2], term.of[1::-1]):
            by = self._only(factor, plan)
            if one.op == "read" and by is not None:
                power = 1 << 32 + shift
                right = power <= by * divisor <= power + (1 << shift)
                if right and self._copied(plan.sources[one.name]) == whole:
                    return True
        return False

    def _only(self, term: Term, plan: _Plan) -> int | None:
        """The value of a number, or of a register that has one alone."""
        if term.op == "constant":
            return term.number
        if term.op != "read":
            return None
        values = self._values(plan.sources[term.name])
        return min(values) if isinstance(values, frozenset) and len(values) == 1 else None

    def _copied(self, node: _Node) -> _Node:
        """What a node is a copy of, but for what is added and is known to be 0."""
        while True:
            plan = self._plans[node]
            term = plan.term
            if term is not None and term.op == "add":
                known = {name: self._bits(source) for name, source in plan.sources.items()}
                parts = [part for part in term.of if bits(part, known) != exactly(0)]
                term = parts[0] if len(parts) == 1 else None
            if term is None or term.op != "read":
                return node
            node = plan.sources[term.name]

    def _bits(self, node: _Node) -> Bits:
        values = self._values(node)
        return values if isinstance(values, Bits) else _bits_of(values)

    # ------------------------------------------------------------------ low bits

    def _by_low_bits(self, node: _Node) -> Values | None:
        """The values of a term that depends on one node with many values, and on its low bits
        alone: ``x - (x + 3 & ~3)``. All others that it depends on must have few values."""
        steps: list[_Node] = []
        few: dict[_Node, frozenset[int]] = {}
        many: set[_Node] = set()
        todo, seen = [(node, False)], set[_Node]()
        while todo:
            one, done = todo.pop()
            if done:
                steps.append(one)
                continue
            if one in seen:
                continue
            seen.add(one)
            values = self._values(one)
            plan = self._plans[one]
            if one != node and isinstance(values, frozenset):
                few[one] = values
            elif plan.term is None or (plan.depth == 0 and one != node):
                many.add(one)
            else:
                todo.append((one, True))
                todo += [(source, False) for source in plan.sources.values()]
        if len(many) != 1:
            return None
        (whole,) = many
        combinations = 1
        for values in few.values():
            combinations *= len(values)
        low = min(6, (_MOST_COMBINATIONS // combinations).bit_length() - 1)
        if low < 1:
            return None
        known = self._bits(whole)
        found: set[int] = set()
        names = list(few)
        for bottom in range(1 << low):
            if bottom & known.zeros or ~bottom & known.ones & (1 << low) - 1:
                continue
            for chosen in product(*(sorted(few[name]) for name in names)):
                at: dict[_Node, _Linear] = {n: (0, v) for n, v in zip(names, chosen, strict=True)}
                at[whole] = (1, bottom)
                for step in steps:
                    plan = self._plans[step]
                    assert plan.term is not None
                    inside = {n: at[source] for n, source in plan.sources.items()}
                    value = _linear(plan.term, inside, low)
                    if value is None:
                        return None
                    at[step] = value
                times, value_at = at[node]
                if times:
                    return None
                found.add(value_at)
        return frozenset(found) if len(found) <= MOST_VALUES else _bits_of(found)


#: by its term, all of what it depends on with few values, or not all; by its own few values; not
_Kind = Literal["inner", "partly", "leaf", "many"]
#: ``times * h + number`` modulo 2^32, where h is not known, but a multiple of a power of 2
_Linear = tuple[int, int]


def _linear(term: Term, known: Mapping[str, _Linear], low: int) -> _Linear | None:
    """A term, when h is a multiple of 2^low; None if it has no such form."""
    if term.op == "constant":
        return 0, term.number
    if term.op == "read":
        return known[term.name]
    of: list[_Linear] = []
    for part in term.of:
        one = _linear(part, known, low)
        if one is None:
            return None
        of.append(one)
    if not any(times for times, _ in of):
        parts = tuple(constant(value) for _, value in of)
        result = number(Term(term.op, parts, term.number, term.name), {})
        return None if result is None else (0, result)
    (times, value), *rest = of
    if term.op == "add":
        return sum(t for t, _ in of) & WORD, sum(v for _, v in of) & WORD
    if term.op == "not":
        return -times & WORD, ~value & WORD
    if term.op == "shl" and not rest[0][0] and rest[0][1] < 32:
        return times << rest[0][1] & WORD, value << rest[0][1] & WORD
    if term.op == "mul" and not (times and rest[0][0]):
        (other_times, other), factor = (
            (rest[0], value) if not times else ((times, value), rest[0][1])
        )
        return other_times * factor & WORD, other * factor & WORD
    if term.op == "lut" and term.number == 0xC0:  # a and b
        if times and rest[0][0]:
            return None
        (times, value), mask = (rest[0], value) if not times else ((times, value), rest[0][1])
        # the bits of times * h that are 0 for certain
        zero = (times & -times) * (1 << low) - 1
        if not mask & ~zero:
            return 0, value & mask
        if not ~mask & WORD & ~zero:
            return times, value & mask
    return None


def _goes_up(term: Term) -> bool:
    """Whether a term is what it reads, or that and a small number."""
    if term.op == "read":
        return True
    if term.op == "select":
        return all(_goes_up(part) for part in term.of[1:])
    if term.op != "add" or len(term.of) != 2:
        return False
    return term.of[0].op == "read" and term.of[1].op == "constant" and term.of[1].number < 1 << 16


def _is_predicate(node: _Node) -> bool:
    return isinstance(node, Written | Meeting | Initial) and "P" in node.register


def _bits_of(values: Collection[int]) -> Bits:
    ones = zeros = WORD
    for value in values:
        ones &= value
        zeros &= ~value
    return Bits(zeros, ones)


def _as_set(known: Bits) -> Values:
    """All values with these bits, if they are few."""
    free = ~(known.zeros | known.ones) & WORD
    if 1 << free.bit_count() > MOST_VALUES:
        return known
    found = [known.ones]
    for place in range(32):
        if free >> place & 1:
            found += [value | 1 << place for value in found]
    return frozenset(found)


def _join(one: Values, other: Values) -> Values:
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        both = one | other
        return both if len(both) <= MOST_VALUES else _bits_of(both)
    if not one and isinstance(one, frozenset):
        return other
    if not other and isinstance(other, frozenset):
        return one
    return joined(
        one if isinstance(one, Bits) else _bits_of(one),
        other if isinstance(other, Bits) else _bits_of(other),
    )


def _low_bits(known: Bits) -> Bits:
    """The bits below the first that is not known: what is left of a counter in the end."""
    free = ~(known.zeros | known.ones) & WORD
    low = (free & -free) - 1 if free else WORD
    return Bits(known.zeros & low, known.ones & low)


def _components(needs: Mapping[_Node, list[_Node]]) -> Iterable[list[_Node]]:
    """Nodes that need each other, each group behind those that it needs (Tarjan)."""
    numbers: dict[_Node, int] = {}
    lowest: dict[_Node, int] = {}
    path: list[_Node] = []
    on_path: set[_Node] = set()
    for root in needs:
        if root in numbers:
            continue
        stack = [(root, 0)]
        while stack:
            node, at = stack.pop()
            if node not in numbers:
                numbers[node] = lowest[node] = len(numbers)
                path.append(node)
                on_path.add(node)
            entered = False
            for place in range(at, len(needs[node])):
                other = needs[node][place]
                if other not in needs:  # solved before
                    continue
                if other not in numbers:
                    stack += [(node, place), (other, 0)]
                    entered = True
                    break
                if other in on_path:
                    lowest[node] = min(lowest[node], lowest[other])
            if entered:
                continue
            if lowest[node] == numbers[node]:
                group: list[_Node] = []
                while not group or group[-1] != node:
                    group.append(path.pop())
                    on_path.discard(group[-1])
                yield group
