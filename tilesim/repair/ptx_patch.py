"""Repairs as patches of PTX text: other operands, statements that come or go.

What an edit of machine code is in the text is guessed, statement by statement; the text is read
again then and has to be proved like the edit, so that a wrong guess is no patch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product

from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import peer_of
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Binary, Const, Expr
from tilesim.ir.mir import Branch, Control
from tilesim.ir.op import Op, operand_names
from tilesim.ir.program import Stmt
from tilesim.ir.spelling import Slot, opcode, spelling
from tilesim.mistakes.edits import changed_operand, differ, whole_number
from tilesim.records import dataclass
from tilesim.transforms.rewrite import Instead, Patch

#: texts that are read again for one repair, at most
MOST = 24
#: lines that a statement may take
_LINES = 16
#: a label, a guard, the opcode and its operands
_STATEMENT = re.compile(r"(\s*(?:[\w$]+\s*:)?\s*\{?\s*)((?:@!?%?[\w$]+\s+)?)([a-z][\w.:]*)([^;]*)")
_REGISTER = re.compile(r"(?<![\w%$])%[A-Za-z_][\w$]*")
_NUMBER = re.compile(r"(?<![\w%$.])-?\d+(?![\w$])")
#: how an operand is computed from what is there
_STEPS = {"^": "xor.b32", "+": "add.s32", "-": "sub.s32"}


@dataclass(frozen=True)
class Lines:
    """The lines of a PTX file."""

    file: str
    lines: tuple[str, ...]

    def with_patches(self, patches: Sequence[Patch]) -> str:
        """The whole text with some lines replaced, in which the others keep their numbers."""
        lines = list(self.lines)
        for patch in patches:
            kept = patch.last - patch.first
            new = [*patch.new[:kept], " ".join(patch.new[kept:])]
            lines[patch.first - 1 : patch.last] = new + [""] * (kept + 1 - len(new))
        return "".join(f"{line}\n" for line in lines)

    def patches(self, edits: Sequence[tuple[Stmt | Control, Instead]]) -> Iterator[list[Patch]]:
        """What the edits of some instructions, of different lines, may be in the text."""
        each = [list(dict.fromkeys(self._of(old, new))) for old, new in edits]
        for chosen in islice(product(*each), MOST):
            places = {patch.first for patch in chosen}
            if len(places) == len(chosen):
                yield list(chosen)

    def _of(self, old: Stmt | Control, new: Instead) -> Iterator[Patch]:
        number = old.loc.innermost.line
        if not isinstance(old, Op | Branch) or not 0 < number <= len(self.lines):
            return
        name = "bra" if isinstance(old, Branch) else old.mnemonic
        last = self._end(number)
        lines = self.lines[number - 1 : last]
        parts = "\n".join(lines).split(";")
        for place, part in enumerate(parts[:-1]):
            found = _STATEMENT.fullmatch(part)
            if found is None or _family(found[3]) != _family(name):
                continue
            for text in self._instead(old, new, found):
                end = ";" if text.strip() and not text.endswith(("}", ":")) else ""
                rest = ";".join(parts[place + 1 :])
                changed = "".join(f"{part};" for part in parts[:place]) + text + end + rest
                kept = tuple(changed.split("\n")) if changed.strip() else ()
                yield Patch(self.file, number, last, lines, kept)

    def _end(self, number: int) -> int:
        """The line in which the statement that begins in this one has its semicolon."""
        for last in range(number, min(number + _LINES, len(self.lines) + 1)):
            if ";" in self.lines[last - 1].partition("//")[0]:
                return last
        return number

    def _instead(self, old: Op | Branch, new: Instead, found: re.Match[str]) -> Iterator[str]:
        """The statement as it may be, without its end."""
        if isinstance(old, Branch):
            yield from self._guarded(found)
            return
        begin, guard, _, rest = found.groups()
        whole = guard + found[3] + rest
        if not new:
            yield begin.rstrip() if begin.strip() else ""
            return
        elsewhere = [_elsewhere(what, guard, rest) for what in new if what is not old]
        if elsewhere and all(text is not None for text in elsewhere):
            texts = [f"{whole};"] if any(what is old for what in new) else []
            yield begin + "\n".join([*texts, *(text for text in elsewhere if text is not None)])
            return
        here = [n for n, what in enumerate(new) if what is old]
        if here:
            added = [_spelled(what, old, rest) for what in new if what is not old]
            if all(text is not None for text in added):
                texts = [f"{guard}{text}" for text in added if text is not None]
                texts.insert(here[0], whole)
                yield begin + ";\n".join(texts)
            return
        (only, *more) = new
        if more or not isinstance(only, Op):
            return
        if type(only) is not type(old):
            text = _spelled(only, old, rest)
            if text is not None:
                yield f"{begin}{guard}{text}"
            return
        yield from (begin + text for text in self._operand(old, only, found))

    def _guarded(self, found: re.Match[str]) -> Iterator[str]:
        """The jump with one of the two conditions of which its guard is made."""
        begin, guard, code, rest = found.groups()
        name = guard.strip("@! \n\t")
        both = rf"\b(?:or|and)\.pred\s+{re.escape(name)}\s*,\s*(%[\w$]+)\s*,\s*(%[\w$]+)\s*;"
        for made in re.finditer(both, "\n".join(self.lines)) if name else ():
            for one in made.groups():
                yield begin + guard.replace(name, one) + code + rest

    def _operand(self, old: Op, new: Op, found: re.Match[str]) -> Iterator[str]:
        """The statement with one operand exchanged."""
        _, guard, code, rest = found.groups()
        apart = changed_operand(old, new)
        if apart is None:
            return
        _, was, worth = apart
        known_worth, before = whole_number(worth), whole_number(was)
        step = _step(was, worth)
        for token in _tokens(rest, before):
            register = token[0].startswith("%")
            known = self._set_to(token[0]) if register else int(token[0])
            value = known_worth
            if step is not None and known is not None:
                op, by = step
                value = {"^": known ^ by, "+": known + by, "-": known - by}[op]
            if value is not None:
                yield guard + code + rest[: token.start()] + str(value) + rest[token.end() :]
            elif step is not None and register:
                name = "%repaired"
                changed = rest[: token.start()] + name + rest[token.end() :]
                made = f"{{ .reg .b32 {name}; {_STEPS[step[0]]} {name}, {token[0]}, {step[1]}; "
                yield f"{made}{guard}{code}{changed}; }}"

    def _set_to(self, register: str) -> int | None:
        """The number that a register is set to, if that is all that is done with it."""
        name = re.escape(register)
        numbers = re.findall(rf"\bmov\.[bus]32\s+{name}\s*,\s*(-?\d+)\s*;", "\n".join(self.lines))
        others = re.findall(rf"\b[a-z][\w.:]*\s+{name}\s*,", "\n".join(self.lines))
        return int(numbers[0]) if len(numbers) == len(others) == 1 else None


def _elsewhere(what: Stmt | Control, guard: str, operands: str) -> str | None:
    """An arrival on the barrier of another CTA, where one with these operands arrives on its own;
    None if it is none."""
    effects = what.effects() if isinstance(what, Op) else ()
    arrives = next((e for e in effects if isinstance(e, fx.Arrives)), None)
    array = None if arrives is None else arrives.mbar.array
    there = peer_of(array.address) if isinstance(array, AddressedMbarriers) else None
    bracket = re.search(r"\[([^\]]*)\](.*)", operands, re.DOTALL)
    if arrives is None or there is None or bracket is None:
        return None
    known = whole_number(there[1])
    rank, steps = str(known), ""
    if known is None:
        rank = "%rank"
        steps = f".reg .b32 {rank}; mov.u32 {rank}, %cluster_ctarank; xor.b32 {rank}, {rank}, 1; "
    steps += f"mapa.shared::cluster.u32 %repaired, {bracket[1]}, {rank};"
    code = f"mbarrier.arrive.{arrives.sem}.cluster.shared::cluster.b64 _, [%repaired]{bracket[2]};"
    return f"{{ .reg .b32 %repaired; {steps} {guard}{code} }}"


def _family(mnemonic: str) -> str:
    return mnemonic.partition(".")[0].replace("barrier", "bar")


def _tokens(rest: str, before: int | None) -> list[re.Match[str]]:
    """The operands, the last first; of those the number that is to change, if it is there."""
    tokens = [*_NUMBER.finditer(rest), *_REGISTER.finditer(rest)]
    same = [t for t in tokens if before is not None and t[0] == str(before)]
    return sorted(same or tokens, key=lambda t: -t.start())


def _step(was: object, worth: object) -> tuple[str, int] | None:
    """How one operand is computed from another one."""
    match worth:
        case Binary("^" | "+" | "-" as op, lhs, Const(by)) if lhs is was or not differ(lhs, was):
            return op, int(by)
    match was:
        case Binary("^", lhs, Const(by)) if isinstance(worth, Expr) and not differ(lhs, worth):
            return "^", int(by)
    return None


def _spelled(what: Stmt | Control, beside: Op, operands: str) -> str | None:
    """An instruction as text, whose mbarrier is that of the statement beside it."""
    bracket = re.search(r"\[([^\]]*)\]", operands)
    own = [getattr(beside, n) for n in operand_names(type(beside))]

    def barrier(value: object) -> str | None:
        return bracket[1] if bracket and isinstance(value, Mbar) and value in own else None

    return written(what, barrier) if isinstance(what, Op) else None


def written(op: Op, named: Callable[[object], str | None] = lambda value: None) -> str | None:
    """An instruction as PTX writes it, if its operands are numbers, or ``named`` says their text;
    else None."""
    if not op.ptx:
        return None
    texts = []
    for part in spelling(type(op)).operands:
        if not isinstance(part, Slot):
            texts.append(part)
            continue
        value = getattr(op, part.name)
        number = whole_number(value)
        text = named(value) if number is None else str(number)
        if value is None:
            text = "" if part.mark else "_"
        if text is None:
            return None
        texts.append(f", {text}" if part.mark and text else text)
    return f"{opcode(op)} {''.join(texts)}".rstrip()
