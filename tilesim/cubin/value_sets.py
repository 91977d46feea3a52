"""The values that a register can have at a place: all of them, or None where too many are possible.

A value is followed back through what wrote it (`versions`), as the terms that instructions compute
(`arithmetic`). Where all that a term depends on has few values it is computed for each combination,
with the conditions of the branches that lead there; else the bits that are known are followed. What
meets in a loop is taken to a fixpoint. Registers are those of one thread: what a uniform register
holds is what the thread whose path is followed has put there.

What is returned contains every value that the register can have, when nvdisasm's text means what
`arithmetic` says, the caller's values are right, and the code is that of `Function`. One thing is
taken for granted: a counter that begins below 2^30, and goes up by less than 2^16 at a time, does
not come to 2^30. What the caller knows must hold for each thread of the warp: votes, shuffles and
``R2UR`` bring values from one thread to another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Literal, TypeGuard

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
    source,
)
from tilesim.cubin.operands import WORD, Register, mbarrier_operand, parse
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.cubin.versions import Initial, Meeting, Version, Versions, Written
from tilesim.records import dataclass

#: values of a set at most
MOST_VALUES = 64
#: what a counter that goes up comes to at most, see above
MOST_COUNTED = (1 << 30) - 1
_MOST_STEP = (1 << 16) - 1
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
#: which the guard is true, what another thread has, a vote; at the beginning of a loop, turns of it
_OLD, _SOME, _SHARED, _VOTE = "(old)", "(some)", "(shared)", "(vote)"
_FIRST, _TURNS = "(first)", "(turns)"


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


@dataclass(frozen=True)
class _Turns:
    """How many times a loop that begins at ``pc`` has begun again; ``next``: and once more."""

    pc: int
    next: bool = False


_Node = Version | _Given | _Asked | _Vote | _OfSome | _Turns


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
        #: predicates that hold, or do not, where a question is answered
        self._assumed: dict[_Node, bool] = {}
        self._meets: dict[_Node, list[tuple[_Node, list[_Condition]]]] = {}

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
        self._assumed = {self._copied(one.node): one.holds for one in conditions}
        found = self._under(asked, conditions)
        self._assumed = {}
        narrowed = self._narrowed(asked, conditions, {})
        if isinstance(found, frozenset) and isinstance(narrowed, frozenset):
            return found & narrowed
        return next((one for one in (found, narrowed) if isinstance(one, frozenset)), None)

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
        if isinstance(node, _Turns):
            turns = {_TURNS: _Turns(node.pc)}
            return (
                (_sum(read(_TURNS), constant(1)), {**turns}, ANY) if node.next else (None, {}, ANY)
            )
        opaque: Values = frozenset({0, 1}) if "P" in node.register else ANY
        if isinstance(node, Meeting):
            counter = self._counter(node)
            if counter is None:
                return None, {}, opaque
            first, step = counter
            turns_of = Term("mul", (read(_TURNS), constant(step)))
            return _sum(read(_FIRST), turns_of), {_FIRST: first, _TURNS: _Turns(node.pc)}, ANY
        if isinstance(node, Initial):
            return None, {}, opaque
        pc, one = node.pc, self.function.code[node.pc]
        made = self._result(one, node)
        if made is None:
            return None, {}, opaque
        result, sources = made
        if not one.guard:
            return result, sources, opaque
        guard = predicate(one.guard)
        old = self._versions.version(node.register, pc)
        assert guard is not None
        assert old is not None
        if node.register.startswith("UR") and "UP" not in one.guard:
            # one register for all threads: it is written if the guard is true in any of them
            any_thread, sources = self._vote(("ANY",), one.guard, pc)
            sources |= {_SOME: _OfSome(_Asked(result, pc), _Asked(guard, pc)), _OLD: old}
            return Term("select", (any_thread, read(_SOME), read(_OLD))), sources, opaque
        sources |= {name: self._source(name, pc) for name in reads(guard)} | {_OLD: old}
        return Term("select", (guard, result, read(_OLD))), sources, opaque

    def _result(self, one: Instruction, node: Written) -> tuple[Term, dict[str, _Node]] | None:
        """What an instruction writes into a register, without its guard; None: not known."""
        if one.base in ("VOTE", "VOTEU") and one.operands[0] == node.register:
            return self._vote(one.modifiers, one.operands[1], node.pc)
        if one.base == "SHFL" and one.operands[1] == node.register:
            shared = source(one.operands[2])
            if shared is None:
                return None
            asked = _Asked(shared, node.pc)
            return read(_SHARED), {_SHARED: _OfSome(asked, _Asked(constant(1), node.pc))}
        result = None if one.base == "CALL" else computed(one, node.register)
        if result is None:
            return None
        return result, {name: self._source(name, node.pc) for name in reads(result)}

    def _vote(self, how: Collection[str], text: str, pc: int) -> tuple[Term, dict[str, _Node]]:
        """Whether a predicate is true in all threads of the warp, or in any."""
        one = parse(text)
        if not isinstance(one, Register) or one.name in ("PT", "UPT"):
            return read(_VOTE), {_VOTE: _Given(_VOTE, frozenset({0, 1}), pc)}
        of, sign = self._source(one.name, pc), one.sign
        if "ALL" in how:
            return read(_VOTE), {_VOTE: _Vote(of, sign, self._versions.start(pc))}
        if isinstance(of, Written) and not sign and self._elects(of):
            return constant(1), {}
        other = _Vote(of, "" if sign else "!", self._versions.start(pc))
        return Term("lut", (read(_VOTE), constant(1), constant(0)), 0x3C), {_VOTE: other}

    def _elects(self, node: Written) -> bool:
        """Whether a predicate is that of ``ELECT``, which is true in one of the threads: its guard
        must be true in any of them. ptxas guards that of a loop over threads by those that are
        left: a predicate that is true at first, and by which the loop goes on."""
        one = self.function.code[node.pc]
        if one.opcode != "ELECT" or not one.guard:
            return one.opcode == "ELECT"
        left = self._versions.version(one.guard, node.pc)
        if not isinstance(left, Meeting):
            return False
        for pc, version in self._versions.met(left):
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
        met = self._versions.met(node)
        again = [one for one in met if self._versions.dominates(node.pc, one[0])]
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
            found = self._versions.version(term.name, version.pc)
            assert found is not None
            version = found
        return None

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
        guards = [predicate(text) for text in (one.guard, *one.operands[:-1]) if text]
        if one.base == "EXIT":
            guards = [predicate(text) for text in (one.guard, *one.operands) if text]
        terms = [guard for guard in guards if guard is not None]
        if not terms or len(terms) != len(guards) or {*one.modifiers} & {"ANY", "DIV", "CONV"}:
            return []
        taken = terms[0]
        for other in terms[1:]:
            taken = Term("lut", (taken, other, constant(0)), 0xC0)
        node = _Asked(taken, branch)
        if one.base == "BRA" and one.target not in (None, following):
            return [_Condition(self._add(node), to == one.target)]
        return [_Condition(self._add(node), False)] if one.base == "EXIT" else []

    def _met(self, node: Meeting | _Turns) -> list[tuple[_Node, list[_Condition]]]:
        """What meets, each with what branches say on its path and bears on it."""
        found: list[tuple[_Node, list[_Condition]]] = []
        versions: list[tuple[int, _Node]]
        if isinstance(node, Meeting):
            versions = [*self._versions.met(node)]
        else:
            zero = _Given(_TURNS, frozenset({0}), node.pc)
            versions = [
                (pc, _Turns(node.pc, True) if self._versions.dominates(node.pc, pc) else zero)
                for pc in self._versions.before(node.pc)
            ]
        for pc, version in versions:
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

    def _meets_at(self, node: _Node) -> TypeGuard[Meeting | _Turns]:
        """Whether a node is where paths meet, and no counter."""
        return self._plans[node].term is None and isinstance(node, Meeting | _Turns)

    # ------------------------------------------------------------------ fixpoint

    def _solve(self, roots: Iterable[_Node]) -> bool:
        """Finds the values of nodes and of all that they need; False if that is too much."""
        needs: dict[_Node, list[_Node]] = {}
        todo = [self._add(root) for root in roots]
        while todo:
            node = todo.pop()
            if node in needs or node in self._solved:
                continue
            if self._meets_at(node):
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
        counters = self._counters(group)
        for _ in range(_MOST_ROUNDS):
            changed = False
            for node in group:
                old = self._current[node]
                new = _join(old, self._transfer(node))
                if self._meets_at(node) and isinstance(new, Bits):
                    new = _low_bits(new)
                if isinstance(new, Bits) and node in counters:
                    new = Bits(new.zeros | ~MOST_COUNTED & WORD, new.ones & MOST_COUNTED)
                changed |= new != old
                self._current[node] = new
            if not changed:
                break
        else:
            for node in group:
                self._current[node] = _as_set(BOOLEAN) if _is_predicate(node) else ANY
        for node in group:
            self._solved[node] = self._current.pop(node)

    def _counters(self, group: list[_Node]) -> frozenset[_Node]:
        """The nodes of those that need each other that are counters, which begin at small numbers
        and go up by small ones; all that are no predicates, or none."""
        turns = frozenset(node for node in group if isinstance(node, _Turns))
        inside = {node for node in group if not _is_predicate(node) and node not in turns}
        for node in inside:
            plan = self._plans[node]
            if self._meets_at(node):
                starts = [one for one, _ in self._meets[node] if one not in inside]
            elif plan.term is None or self._rising(plan.term, plan, inside) is None:
                return turns
            else:
                starts = [one for name, one in plan.sources.items() if name == _FIRST]
            if not all(one in inside or self._bits(one).most <= MOST_COUNTED for one in starts):
                return turns
        return turns | inside

    def _rising(self, term: Term, plan: _Plan, inside: Collection[_Node]) -> int | None:
        """How many of the nodes inside a term adds small numbers to; None if it does not do so."""
        if term.op == "constant":
            return 0 if term.number <= _MOST_STEP else None
        if term.op == "read":
            source = plan.sources[term.name]
            if source in inside:
                return 1
            known = isinstance(source, _Turns) or term.name == _FIRST
            return 0 if known or self._bits(source).most <= _MOST_STEP else None
        parts = term.of[1:] if term.op == "select" else term.of
        counts = [self._rising(part, plan, inside) for part in parts]
        found = [count for count in counts if count is not None]
        if len(found) < len(counts) or term.op not in ("add", "mul", "select"):
            return None
        if term.op == "select":
            return max(found)
        total = sum(found)
        if term.op == "mul":  # of turns of a loop, or small
            of_turns = any(part.op == "read" and part.name == _TURNS for part in parts)
            of_sources = {name: self._bits(one) for name, one in plan.sources.items()}
            small = of_turns or bits(term, of_sources).most <= _MOST_STEP
            return 0 if small and not total else None
        return total if total <= 1 else None

    def _values(self, node: _Node) -> Values:
        found = self._current.get(node)
        return self._solved[node] if found is None else found

    def _transfer(self, node: _Node) -> Values:
        if self._meets_at(node):
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
        if plan.term is None or (node in self._solved and not conditions):
            return self._limited(node, self._values(node), conditions)
        sources = {name: self._values(source) for name, source in plan.sources.items()}
        if any(not one for one in sources.values() if isinstance(one, frozenset)):
            return frozenset()
        few = self._by_remainders(node)
        if few is None:
            few = self._by_low_bits(node)
        if few is None:
            few = self._by_arms(plan)
        if few is not None:
            return few
        return self._narrowed(node, conditions, {})

    def _narrowed(
        self, node: _Node, conditions: list[_Condition], done: dict[_Node, Values]
    ) -> Values:
        """The values of a node where conditions hold, from those of what it reads there, each for
        itself."""
        found = done.get(node)
        if found is None:
            plan = self._plans[node]
            if plan.term is None or (node in self._solved and not conditions):
                found = self._values(node)
            else:
                sources = plan.sources.items()
                known = {n: self._narrowed(one, conditions, done) for n, one in sources}
                found = _of_term(plan.term, known)
            found = done[node] = self._limited(node, found, conditions)
        return found

    def _by_arms(self, plan: _Plan) -> Values | None:
        """The values of a term that chooses one of two registers by a predicate."""
        term = plan.term
        if (
            term is None
            or term.op != "select"
            or any(part.op == "constant" for part in term.of[:1])
        ):
            return None
        found: Values = frozenset()
        predicate_of, sign = _plain(term.of[0])
        if predicate_of is None:
            return None
        for arm, holds in ((term.of[1], True), (term.of[2], False)):
            if arm.op == "constant":
                found = _join(found, frozenset({arm.number}))
                continue
            if arm.op != "read":
                return None
            condition = _Condition(plan.sources[predicate_of], holds != sign)
            source = plan.sources[arm.name]
            found = _join(found, self._limited(source, self._values(source), [condition]))
        return found

    def _limited(self, node: _Node, values: Values, conditions: list[_Condition]) -> Values:
        """Values of a node of which conditions compare it with a number."""
        whole = self._copied(node)
        for one in conditions:
            if isinstance(values, frozenset):
                break
            plan, holds = self._plans[self._copied(one.node)], one.holds
            term = plan.term
            while term is not None and term.op == "lut" and len(term.of) == 3:
                inner = term.of[0]
                if term.number == 0xC0 and term.of[1:] == (constant(1), constant(0)):
                    term = inner
                elif term.number == 0x3C and term.of[1:] == (constant(1), constant(0)):
                    term, holds = inner, not holds
                else:
                    break
                if term.op == "read":
                    plan = self._plans[self._copied(plan.sources[term.name])]
                    term = plan.term
            if term is None or not term.op.startswith("compare") or term.of[0].op != "read":
                continue
            limit = self._only(term.of[1], plan)
            if limit is None or self._copied(plan.sources[term.of[0].name]) != whole:
                continue
            signed = term.op == "compare_signed"
            if signed and (limit >> 31 or self._bits(whole).most >> 31):
                continue
            how = term.name if holds else _OPPOSITE[term.name]
            most = {"LT": limit - 1, "LE": limit, "EQ": limit}.get(how)
            if most is None:
                continue
            if most < 0:
                return frozenset()
            low = values.zeros, values.ones
            small = below(most + 1)
            values = _as_set(Bits(low[0] | small.zeros, low[1]))
            if isinstance(values, frozenset):
                values = frozenset(value for value in values if value <= most)
        return values

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
                at[one] = number(plan.term, {n: at[s] for n, s in plan.sources.items()})
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

    def _by_remainders(self, node: _Node) -> Values | None:
        """The values of a sum in which what has many values is ``x - c * (x / c)``, or a multiple
        of it: as compilers take remainders of a division by a number that they know."""
        form = self._sum_of(node)
        if node in form.times:
            return None
        parts: list[tuple[int, int]] = []  # times, below
        for one in [*form.times]:
            times = form.times.get(one, 0)
            if not times or isinstance(self._values(one), frozenset):
                continue
            quotient = self._quotient(one)
            if quotient is None:
                continue
            whole, divisor = quotient
            multiple = -_signed_number(times)
            if multiple % divisor or not 2 <= divisor <= MOST_VALUES:
                continue
            multiple //= divisor
            rest = form.plus(self._sum_of(whole), -multiple).without(one)
            if self._many(rest) < self._many(form.without(one)):
                form = rest
                parts.append((multiple, divisor))
        few: list[list[int]] = [[multiple * n for n in range(by)] for multiple, by in parts]
        combinations = 1
        for one, times in form.times.items():
            values = self._values(one)
            if not isinstance(values, frozenset):
                return None
            few.append([times * value for value in values])
        for each in few:
            combinations *= len(each)
        if combinations > _MOST_COMBINATIONS:
            return None
        found = {form.number + sum(chosen) & WORD for chosen in product(*few)}
        return frozenset(found) if len(found) <= MOST_VALUES else _bits_of(found)

    def _many(self, form: _Form) -> int:
        """How many parts of a sum have many values."""
        return sum(not isinstance(self._values(one), frozenset) for one in form.times)

    def _sum_of(self, node: _Node) -> _Form:
        """A node as a sum of multiples of nodes, and a number."""
        node = self._copied(node)
        plan = self._plans[node]
        values = self._solved.get(node)
        if isinstance(values, frozenset):
            if len(values) == 1:
                return _Form({}, min(values))
            return _Form({node: 1}, 0)
        if plan.term is None or not plan.depth:
            return _Form({node: 1}, 0)
        term = self._term(node)
        return (term and self._form(term, plan)) or _Form({node: 1}, 0)

    def _form(self, term: Term, plan: _Plan) -> _Form | None:
        """A term as such a sum; None if it is none."""
        if term.op == "constant":
            return _Form({}, term.number)
        if term.op == "read":
            return self._sum_of(plan.sources[term.name])
        if term.op == "select":
            name, opposite = _plain(term.of[0])
            yes, no = (self._form(part, plan) for part in term.of[1:])
            if name is None or yes is None or no is None:
                return None
            yes, no = (no, yes) if opposite else (yes, no)
            more = yes.plus(no, -1)  # where the predicate is true
            chosen = _Form({plan.sources[name]: more.number}, 0)
            return None if more.times else no.plus(chosen, 1)
        if term.op not in ("add", "mul", "shl", "not"):
            return None
        of = [self._form(part, plan) for part in term.of]
        forms = [one for one in of if one is not None]
        if len(forms) != len(of):
            return None
        if term.op == "add":
            total = forms[0]
            for other in forms[1:]:
                total = total.plus(other, 1)
            return total
        if term.op == "not":
            return _Form({}, WORD).plus(forms[0], -1)
        if term.op == "shl":
            by = forms[1].number
            return None if forms[1].times or by > 31 else _Form({}, 0).plus(forms[0], 1 << by)
        for one, other in (forms, forms[::-1]):
            if not other.times:
                return _Form({}, 0).plus(one, other.number)
        return None

    def _quotient(self, node: _Node) -> tuple[_Node, int] | None:
        """What a node is the quotient of, rounded down, and the divisor, for each dividend of 32
        bits: the high half of a product with 2^(32+n) / divisor, rounded up, shifted right by n
        (Granlund, Montgomery: Division by Invariant Integers using Multiplication, theorem 4.2).
        """
        node, shift = self._copied(node), 0
        plan, term = self._plans[node], self._term(node)
        if term is not None and term.op in ("shr", "sar") and term.of[0].op == "read":
            if term.of[1].op != "constant":
                return None
            shift = term.of[1].number
            node = self._copied(plan.sources[term.of[0].name])
            plan, term = self._plans[node], self._term(node)
        zero = constant(0)
        if term is None or not term.op.startswith("high") or term.of[2:] != (zero, zero):
            return None
        for one, factor in (term.of[:2], term.of[1::-1]):
            by = self._only(factor, plan)
            if one.op != "read" or not by:
                continue
            whole = plan.sources[one.name]
            signed = term.op == "high_signed"
            if signed and (by >> 31 or self._bits(whole).most >> 31):
                continue
            power = 1 << 32 + shift
            divisor = -(-power // by)
            # of 31 bits the product may be off by twice as much
            if power <= by * divisor <= power + (1 << shift + signed):
                return whole, divisor
        return None

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
            term = self._term(node)
            if term is not None and term.op == "add":
                known = {name: self._bits(source) for name, source in plan.sources.items()}
                parts = [part for part in term.of if bits(part, known) != exactly(0)]
                term = parts[0] if len(parts) == 1 else None
            if term is None or term.op != "read":
                return node
            node = plan.sources[term.name]

    def _term(self, node: _Node) -> Term | None:
        """The term of a node; of one that a predicate chooses, that which is chosen if the
        predicate is assumed."""
        plan = self._plans[node]
        term = plan.term
        if term is not None and term.op == "select" and self._assumed:
            name, opposite = _plain(term.of[0])
            holds = None if name is None else self._assumed.get(self._copied(plan.sources[name]))
            if holds is not None:
                return term.of[1 if holds != opposite else 2]
        return term

    def _bits(self, node: _Node) -> Bits:
        values = self._values(node)
        if isinstance(values, Bits) and self._assumed:
            plan, term = self._plans[node], self._term(node)
            if term is not None and term != plan.term:
                return bits(term, {name: self._bits(plan.sources[name]) for name in reads(term)})
        return values if isinstance(values, Bits) else _bits_of(values)

    # ------------------------------------------------------------------ low bits

    def _by_low_bits(self, node: _Node) -> Values | None:
        """The values of a term that depends on one node with many values, and on its low bits
        alone: ``x - (x + 3 & ~3)``. All others that it depends on must have few values."""
        found = self._by_low_bits_of(node, counters=True)
        return self._by_low_bits_of(node, counters=False) if found is None else found

    def _by_low_bits_of(self, node: _Node, *, counters: bool) -> Values | None:
        """As `_by_low_bits`, of a counter or of how many turns it has taken."""
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
            elif plan.term is None or (
                one != node and (not plan.depth or (counters and isinstance(one, Meeting)))
            ):
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
                at: dict[_Node, _Linear] = {
                    n: (0, v, 32) for n, v in zip(names, chosen, strict=True)
                }
                at[whole] = (1, bottom, 32)
                for step in steps:
                    plan = self._plans[step]
                    assert plan.term is not None
                    inside = {n: at[s] for n, s in plan.sources.items()}
                    value = _linear(plan.term, inside, low)
                    if value is None:
                        return None
                    at[step] = value
                times, value_at, width = at[node]
                if times or width < 32:
                    return None
                found.add(value_at)
        return frozenset(found) if len(found) <= MOST_VALUES else _bits_of(found)


_OPPOSITE = {"LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE", "EQ": "NE", "NE": "EQ"}
#: by its term, all of what it depends on with few values, or not all; by its own few values; not
_Kind = Literal["inner", "partly", "leaf", "many"]
#: ``times * h + number`` where h is not known, but a multiple of a power of 2; in so many low bits
_Linear = tuple[int, int, int]


def _linear(term: Term, known: Mapping[str, _Linear], low: int) -> _Linear | None:
    """A term, when h is a multiple of 2^low; None if it has no such form."""
    if term.op == "constant":
        return 0, term.number, 32
    if term.op == "read":
        return known[term.name]
    of: list[_Linear] = []
    for part in term.of:
        one = _linear(part, known, low)
        if one is None:
            return None
        of.append(one)
    if all(not times and width == 32 for times, _, width in of):
        parts = tuple(constant(value) for _, value, _ in of)
        result = number(Term(term.op, parts, term.number, term.name), {})
        return None if result is None else (0, result, 32)
    width = min(width for _, _, width in of)
    (times, value, _), *rest = of
    if term.op == "add":
        return sum(t for t, _, _ in of) & WORD, sum(v for _, v, _ in of) & WORD, width
    if term.op == "not":
        return -times & WORD, ~value & WORD, width
    if term.op == "shl" and not rest[0][0] and rest[0][2] == 32 and rest[0][1] < 32:
        by = rest[0][1]
        return times << by & WORD, value << by & WORD, min(32, width + by)
    if term.op == "mul":
        factor, other = of if not times and of[0][2] == 32 else of[::-1]
        if factor[0] or factor[2] < 32:
            return None
        return other[0] * factor[1] & WORD, other[1] * factor[1] & WORD, other[2]
    if term.op == "lut" and term.number == 0xC0 and of[2] == (0, 0, 32):  # a and b
        numbers = [one for one in of[:2] if not one[0] and one[2] == 32]
        others = [one for one in of[:2] if one[0] or one[2] < 32]
        if len(numbers) != 1 or len(others) != 1:
            return None
        mask, (times, value, width) = numbers[0][1], others[0]
        # the bits of times * h that are 0 for certain
        zero = ((times & -times) * (1 << low) - 1 if times else WORD) & ((1 << width) - 1)
        if not mask & ~zero:
            return 0, value & mask, 32
        width = min(width, mask.bit_length())
        if not ~mask & (1 << width) - 1 & ~zero:
            return times, value & mask, width
    return None


def _of_term(term: Term, known: Mapping[str, Values]) -> Values:
    """The values of a term, when what it reads has these, in any combination."""
    few = {name: sorted(one) for name, one in known.items() if isinstance(one, frozenset)}
    combinations = 1
    for each in few.values():
        combinations *= len(each)
    if len(few) < len(known) or combinations > _MOST_COMBINATIONS:
        of = {n: one if isinstance(one, Bits) else _bits_of(one) for n, one in known.items()}
        return frozenset() if combinations == 0 else _as_set(bits(term, of))
    found = {number(term, dict(zip(few, one, strict=True))) for one in product(*few.values())}
    values = frozenset(one for one in found if one is not None)
    return values if len(values) <= MOST_VALUES else _bits_of(values)


def _plain(term: Term) -> tuple[str | None, bool]:
    """The predicate that a term reads, and whether it is its opposite; None if it is neither."""
    if term.op == "read":
        return term.name, False
    if term.op == "lut" and term.number == 0x3C and term.of[1:] == (constant(1), constant(0)):
        name, sign = _plain(term.of[0])
        return name, not sign
    return None, False


def _signed_number(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@dataclass(frozen=True)
class _Form:
    """The sum of multiples of nodes, and a number, modulo 2^32."""

    times: Mapping[_Node, int]
    number: int

    def plus(self, other: _Form, factor: int) -> _Form:
        """This, and another one so many times."""
        times = dict(self.times)
        for one, count in other.times.items():
            times[one] = times.get(one, 0) + factor * count & WORD
        kept = {one: count for one, count in times.items() if count}
        return _Form(kept, self.number + factor * other.number & WORD)

    def without(self, node: _Node) -> _Form:
        """This without the multiples of a node."""
        return _Form({one: n for one, n in self.times.items() if one != node}, self.number)


def _sum(*parts: Term) -> Term:
    return Term("add", parts)


def _is_predicate(node: _Node) -> bool:
    """Whether a node is a predicate, or asks for one."""
    if isinstance(node, _Asked):
        return True
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
