"""Positions in the source for PTX that a cubin embeds, which ptxas keeps without its ``.loc``.

The cubin has two tables, from machine code to lines of the PTX and to lines of the source. Together
they say for a line of the PTX from which lines of the source it comes. An instruction of which no
machine code is left has the position of the lines around it: ptxas keeps a line for each of the
text, and leaves those blank on which ``.loc`` or a comment was, so lines between two blank ones
were written below one ``.loc``. Of a wait on an mbarrier ptxas makes a first try and a loop, and
says that the first try comes from a line before the wait (`wait_of`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilesim.cubin.sass import Function as MachineCode
from tilesim.cubin.sass import SourceLine
from tilesim.ptx.syntax import Body, Function, Instruction, Located, Module
from tilesim.records import replace

#: no call is in the first column (`Located.outermost`); which one it is the tables do not say
_COLUMN = 2
_WAITS = re.compile(r"\bmbarrier\.(?:try|test)_wait\b")
Chain = tuple[SourceLine, ...]


def with_positions(module: Module, name: str, text: str, code: MachineCode) -> Module:
    """A module whose kernel ``name`` has positions in the source; as it is if it has some already,
    or the cubin has no tables."""
    entry = next((f for f in module.functions if f.name == name and f.body is not None), None)
    if entry is None or entry.body is None or any(i.located for i in entry.body.code):
        return module
    chains = _chains(code, waits_of(text))
    files: dict[str, int] = {}
    known: dict[Chain, Located] = {}
    of_line = {
        line: _located(chain, files, known) for line, chain in _spread(text, chains) if chain
    }
    if not of_line:
        return module
    placed = tuple(_placed(one, of_line) for one in entry.body.code)
    positioned = replace(entry, body=Body(placed, entry.body.scopes))
    functions: tuple[Function, ...] = tuple(
        positioned if one is entry else one for one in module.functions
    )
    named = {number: file for file, number in files.items()}
    return replace(module, functions=functions, files=named)


def _placed(one: Instruction, of_line: Mapping[int, Located]) -> Instruction:
    located = of_line.get(one.place.line)
    return one if located is None else replace(one, located=located)


def waits_of(text: str) -> tuple[int, ...]:
    """The lines of a PTX text on which warps wait for mbarriers."""
    lines = enumerate(text.split("\n"), 1)
    return tuple(number for number, line in lines if _WAITS.search(line))


def wait_of(line: int, waits: Sequence[int]) -> int:
    """The line of the wait that machine code is a try of which the table says that it is from a
    line: the next one."""
    at = bisect_left(waits, line)
    return waits[at] if at < len(waits) else line


def _chains(code: MachineCode, waits: Sequence[int]) -> dict[int, Chain]:
    """By line of the PTX, the position that most of its machine code has; of several the first."""
    seen: dict[int, Counter[Chain]] = {}
    tries: dict[int, Chain] = {}
    for _, one in sorted(code.code.items()):
        if one.ptx is not None and one.lines:
            seen.setdefault(one.ptx, Counter())[one.lines] += 1
            if one.opcode.startswith("SYNCS.PHASECHK"):
                tries.setdefault(wait_of(one.ptx, waits), one.lines)
    return tries | {line: counts.most_common(1)[0][0] for line, counts in seen.items()}


def _spread(text: str, chains: Mapping[int, Chain]) -> Iterator[tuple[int, Chain]]:
    """Each line of the PTX with its position, also where no machine code is left of it."""
    for stretch in _stretches(text.split("\n")):
        own = Counter(chains[line] for line in stretch if line in chains)
        most = own.most_common(1)[0][0] if own else ()
        for line in stretch:
            yield line, chains.get(line, most)


def _stretches(lines: Iterable[str]) -> Iterator[list[int]]:
    """Numbers of lines that follow each other with no blank one between them."""
    stretch: list[int] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            stretch.append(number)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _located(chain: Chain, files: dict[str, int], known: dict[Chain, Located]) -> Located:
    """The position of a chain of calls, the innermost line first."""
    found = known.get(chain)
    if found is None:
        first, *calls = chain
        caller = _located(tuple(calls), files, known) if calls else None
        number = files.setdefault(first.file, len(files) + 1)
        found = known[chain] = Located(number, first.line, _COLUMN, caller=caller)
    return found
