"""What the source calls an mbarrier that PTX knows by its address only.

PTX says where an mbarrier is initialised: the lines of the source, from the kernel's inwards. A
call there names it: ``init(&s.full[i], 1)`` in a loop over ``i`` from 0 on, as a function, a method
or inline PTX; in Gluon ``mbarrier.init(full.index(i), count=1)``. How many were initialised there
before it is its place in the array. Names are for reports: nothing else depends on them.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tilesim.files import CUDA_ENDINGS, source_lines
from tilesim.ir.loc import Loc, is_python
from tilesim.records import dataclass

#: lines before a call in which the loop around it begins, and to the end of the call, at most
_ABOVE, _BELOW = 12, 8
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_]\w*(?:(?:\.|->|::)\w+|\[[^\[\]]*\])*)\s*\(")
_KEYWORDS = frozenset(("if", "for", "while", "switch", "return", "sizeof"))
#: what stands before the bracket of inline PTX
_ASM = frozenset(("asm", "__asm__", "volatile", "__volatile__"))
#: what functions that initialise are called
_INITIALISES = re.compile(r"init|construct|^new$", re.IGNORECASE)
_CAST = re.compile(
    r"(?:static|reinterpret|const)_cast\s*<[^<>]*>|\(\s*[\w:]+(?:\s+\w+)*\s*\*+\s*\)"
)
_OPERAND = re.compile(r'::\s*"[+=&]*[rl]"\s*\(')
_PLACE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::)\w+|\[[^\[\]]*\])*")
_INDEX = re.compile(r"\[\s*([^\[\]]*?)\s*\]")
#: in Gluon
_GLUON = re.compile(r"^\s*(?:\w+\.)*mbarrier\.init\(\s*([\w.]+?)(?:\.index\((\w+)\))?\s*[,)]")
_FROM_0 = r"^\s*for\s+{}\s+in\s+(?:\w+\.)*(?:static_)?range\([^,()]*\)\s*:"


@dataclass(frozen=True)
class _Written:
    """An object as a call names it; with ``behind`` in an array: ``before[place]behind``."""

    before: str
    behind: str | None = None

    def __call__(self, place: int) -> str | None:
        """The object of the call when it is executed for the time with this number."""
        if self.behind is not None:
            return f"{self.before}[{place}]{self.behind}"
        return None if place else self.before


def barrier_name(loc: Loc, number: int) -> str | None:
    """What the source calls the mbarrier with this number (from 0) of those initialised at a place
    of PTX with lines of a source; None if no call there names it."""
    if is_python(loc.file):
        return _in_gluon(loc, number)
    #: the function that initialises it is not at hand: it may initialise others as well
    hidden = True
    places = loc.around
    for depth in reversed(range(len(places))):
        file, line = places[depth]
        lines = source_lines(file, silent=True) if file.endswith(CUDA_ENDINGS) else ()
        if not 0 < line <= len(lines):
            continue
        above = "\n".join(lines[max(0, line - 1 - _ABOVE) : line - 1])
        text = "\n".join(lines[line - 1 : line - 1 + _BELOW])
        hidden = hidden and "mbarrier.init" not in text
        named = _named(above, text)
        if not named:
            continue
        found = named[number % len(named)]
        whole = re.search(r"\W", found.before) or found.behind is not None
        if found.before.startswith("this->") or (not whole and depth):
            continue  # a parameter of a helper, or a member of what a call further out names
        if hidden and found.behind is None:
            return None
        return found(number // len(named))
    return None


def _in_gluon(loc: Loc, number: int) -> str | None:
    """The same of a line of Python: ``mbarrier.init(ready.index(i), count=1)``."""
    lines = source_lines(loc.file, silent=True)
    found = _GLUON.match(lines[loc.line - 1]) if 0 < loc.line <= len(lines) else None
    if found is None:
        return None
    name, index = found.groups()
    if index is None or index.isdigit():
        written = name if index is None else f"{name}.index({index})"
        return None if number else written
    above = "\n".join(lines[max(0, loc.line - 1 - _ABOVE) : loc.line - 1])
    from_0 = re.search(_FROM_0.format(index), above, re.MULTILINE)
    return f"{name}.index({number})" if from_0 else None


@lru_cache(maxsize=1024)
def _named(above: str, text: str) -> tuple[_Written, ...]:
    """What the calls that begin in the first line of a text initialise, in order; none if one of
    them does not say it. ``above``: the lines before."""
    above, text = _COMMENT.sub("", above), _COMMENT.sub("", text)
    first = len(text.partition("\n")[0])
    found: list[_Written] = []
    names = set()
    end = 0
    for call in _CALL.finditer(_STRING.sub(lambda m: "~" * len(m[0]), text)):
        if call.start() < end or call.start() >= first:
            continue
        name = call[1]
        if name in _KEYWORDS:
            continue
        end = _end(text, call.end() - 1)
        inside = text[call.end() : end - 1]
        if name not in _ASM and not _INITIALISES.search(name):
            continue
        loops = above + text[: call.start()]
        if not inside.strip() and "." not in name and "->" not in name:
            continue  # it is given nothing that it could initialise
        one = _asm(inside, loops) if name in _ASM else _argument(name, inside, loops)
        if one is None:
            return ()
        names.add(re.split(r"\.|->|::", name)[-1])
        found.append(one)
    return tuple(found) if len(names) == 1 else ()


def _asm(inside: str, loops: str) -> _Written | None:
    operand = _OPERAND.search(inside.replace("\n", " "))
    if operand is None or "mbarrier.init" not in inside:
        return None
    begin = operand.end() - 1
    return _object(inside[begin : _end(inside, begin)], loops)


def _argument(name: str, inside: str, loops: str) -> _Written | None:
    """What a call initialises: the object of a method, else its first argument."""
    path, mark, _ = _cut_last(name)
    if mark in (".", "->"):
        return _object(path, loops)
    return _object(inside, loops)


def _cut_last(name: str) -> tuple[str, str, str]:
    found = max(((name.rfind(mark), mark) for mark in (".", "->", "::")), key=lambda f: f[0])
    at, mark = found
    return (name[:at], mark, name[at + len(mark) :]) if at >= 0 else ("", "", name)


def _object(text: str, loops: str) -> _Written | None:
    """The object that an argument is, or points to, below casts and conversions."""
    text = _CAST.sub("", text).strip()
    while True:
        text = text.lstrip("&( \n")
        found = _PLACE.match(text)
        if found is None:
            return None
        rest = text[found.end() :].lstrip()
        if not rest.startswith("("):
            break
        text = rest
    place = found[0]
    moving = [i for i in _INDEX.finditer(place) if not _constant(i[1])]
    if not moving:
        return _Written(place)
    index = moving[0][1]
    if len(moving) > 1 or not re.fullmatch(r"[A-Za-z_]\w*", index):
        return None
    if not re.search(rf"\bfor\s*\([^;()]*\b{index}\s*=\s*0\s*;", loops):
        return None
    return _Written(place[: moving[0].start()], place[moving[0].end() :])


def _constant(index: str) -> bool:
    return index.isdigit() or index.isupper()


def _end(text: str, opening: int) -> int:
    """Behind the bracket that closes the one at a place; the end of the text if none does."""
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if not depth:
            return at + 1
    return len(text)
