"""What the source calls what PTX knows by a number or an address: parameters, mbarriers, bytes of
shared memory, named barriers. Names are for reports: nothing else depends on them, and where a text
may mean two things there is none.

The text is read by patterns, from the lines of which PTX has positions:

* a parameter, by its number, in the head of the kernel;
* an mbarrier, by the call that initialises it: ``init(&s.full[i], 1)`` in a loop over ``i`` from 0
  on, as a function, a method or inline PTX; in Gluon ``mbarrier.init(full.index(i), count=1)``. How
  many were initialised there before it is its place in the array;
* a byte, by the array that a variable is, or the struct that the kernel says is in it,
  ``*reinterpret_cast<Storage *>(mem)`` or ``__shared__ Storage s``, of types with known sizes;
* a named barrier, by the one constant with its number that the calls which use it pass.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

from tilesim.files import CUDA_ENDINGS, source_lines
from tilesim.ir.loc import Loc, is_python
from tilesim.records import dataclass

# ------------------------------------------------------------------ mbarriers


#: lines before a call in which the loop around it begins, and to the end of the call, at most
_ABOVE, _BELOW = 12, 8
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
#: a literal, or a comment, which may lack its end
_NOISE = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?')
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
        lines = _cuda(file)
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
    above, text = _without_comments(above), _without_comments(text)
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


# ------------------------------------------------------------------ parameters


#: lines behind that of a kernel on which its parameters end, at most
_HEAD = 60
_NAME = re.compile(r"[\s*&>]([A-Za-z_]\w*)\s*(?:\[[^\[\]]*\]\s*)*(?:=.*)?$", re.DOTALL)
_TYPES = frozenset(("int", "unsigned", "long", "short", "char", "float", "double", "bool", "const"))


def parameter_names(place: tuple[str, int] | None, kernel: str, count: int) -> tuple[str, ...]:
    """By number the names of a kernel's parameters; ``place``: file and line of an instruction of
    it, ``kernel``: its name in C++.

    Empty if they are not known: without the source, or if it has not ``count`` of them. The name of
    one that has none is empty.
    """
    if place is None:
        return ()
    file, line = place
    text = _plain(_cuda(file)[: line + _HEAD])
    name = re.escape(re.sub(r"<.*", "", kernel).rpartition("::")[2])
    heads = re.finditer(rf"__global__\b[^;{{}}]*?\b{name}\s*\(", text)
    ends = [head.end() for head in heads if text.count("\n", 0, head.start()) < line]
    parts = [*_parts(text, ends[-1])] if ends else []
    if len(parts) != count:
        return ()
    found = [_NAME.search(part) for part in parts]
    names = ["" if one is None or one[1] in _TYPES else one[1] for one in found]
    return tuple(name if names.count(name) == 1 else "" for name in names)


# ------------------------------------------------------------------ bytes of shared memory


#: bytes of types, whether signed or not; their alignment is the same
_SIZES = {
    **dict.fromkeys(("char", "bool", "int8_t", "uint8_t", "__nv_fp8_e4m3", "__nv_fp8_e5m2"), 1),
    **dict.fromkeys(("short", "int16_t", "uint16_t", "half", "__half", "__nv_bfloat16"), 2),
    **dict.fromkeys(("int", "float", "int32_t", "uint32_t", "__half2"), 4),
    **dict.fromkeys(("long", "double", "int64_t", "uint64_t", "float2", "int2", "uint2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4"), 16),
}  # fmt: skip
_SIGNS = ("unsigned", "signed")
_ALIGN = re.compile(r"(?:alignas|__align__)\s*\(([^()]*)\)")
_MEMBER = re.compile(r"([A-Za-z_][\w:]*(?:\s+[A-Za-z_]\w*)*?)\s+(\w+(?:\[.*)?)", re.DOTALL)
_DECLARATOR = re.compile(r"\s*([A-Za-z_]\w*)\s*((?:\[[^\[\]]*\]\s*)*)")
_EXTENT = re.compile(r"\[([^\[\]]*)\]")
_STRUCT = r"\bstruct\s+(?:(?:alignas|__align__)\s*\([^()]*\)\s*)?{0}\s*\{{([^{{}}]*)\}}\s*;"
#: a variable that is a struct or an array; a name for what is in one: ``&s = *(Storage *)memory``
_DECLARED = (
    r"__shared__\s+(?:(?:alignas|__align__)\s*\([^()]*\)\s*)?([\w:]+(?:\s+\w+){{0,2}}?)\s+{0}"
    r"((?:\s*\[[^\[\]]+\])*)\s*;"
)
_CAST_OF = (
    r"([&*])\s*(\w+)\s*=\s*(\*?)\s*(?:reinterpret_cast\s*<\s*(\w+)\s*\*\s*>\s*\(\s*{0}\s*\)"
    r"|\(\s*(\w+)\s*\*\s*\)\s*{0})\s*;"
)


@dataclass(frozen=True)
class _Member:
    """A member of a struct: where it begins, the bytes of an element, how many there are."""

    name: str
    offset: int
    size: int
    extents: tuple[int, ...]

    @property
    def end(self) -> int:
        """One past its last byte."""
        nbytes = self.size
        for extent in self.extents:
            nbytes *= extent
        return self.offset + nbytes

    def called(self, offset: int) -> str:
        """What the source calls a byte of it: the row or element that begins there."""
        element, rest = divmod(offset - self.offset, self.size)
        indices: list[int] = []
        for extent in reversed(self.extents):
            element, index = divmod(element, extent)
            indices.insert(0, index)
        while len(indices) > 1 and not indices[-1] and not rest:
            indices.pop()
        return f"{self.name}{''.join(f'[{n}]' for n in indices)}{f'+{rest}' if rest else ''}"


@dataclass(frozen=True)
class Struct:
    """A struct that is in a variable; ``prefix`` is what stands before its members."""

    prefix: str
    members: tuple[_Member, ...]

    def called(self, offset: int) -> str | None:
        """What the source calls a byte of it; None: padding, or a byte behind it."""
        member = next((m for m in self.members if m.offset <= offset < m.end), None)
        return None if member is None else self.prefix + member.called(offset)


def struct_in(place: tuple[str, int], variable: str, nbytes: int) -> Struct | None:
    """The struct that the source says is in a variable of so many bytes in shared memory; None if
    it is not known. ``place``: file and line of an instruction of the kernel."""
    found = _struct(_cuda(place[0]), place[1], variable.rpartition("::")[2])
    return found if found.members and found.members[-1].end <= nbytes else None


def _struct(lines: tuple[str, ...], line: int, variable: str) -> Struct:
    """The struct that the kernel with a line says is in a variable; without members: none."""
    text = _STRING.sub('""', _plain(lines))
    kernels = [m.start() for m in re.finditer(r"\b__global__\b", text)]
    begin = max((k for k in kernels if text.count("\n", 0, k) < line), default=None)
    if begin is None:
        return Struct("", ())
    end = min((k for k in kernels if k > begin), default=len(text))
    body = text[begin:end]
    declared = re.findall(_DECLARED.format(variable), body)
    if declared:
        kind, extents = declared[0]
        if len(declared) > 1:
            return Struct("", ())
        if not extents:
            return Struct(f"{variable}.", _members(text, kind))
        return Struct("", _laid_out([f"{kind} {variable}{extents}"], text))
    casts = re.findall(_CAST_OF.format(variable), body)
    # its declaration and the cast: where it is used again, something else may be there
    if len(casts) != 1 or len(re.findall(rf"(?<![\w.>]){variable}\b", body)) > 2:
        return Struct("", ())
    ((by, name, deref, one, other),) = casts
    if (by == "&") != (deref == "*"):
        return Struct("", ())
    return Struct(f"{name}{'.' if deref else '->'}", _members(text, one or other))


def _members(text: str, struct: str) -> tuple[_Member, ...]:
    """The members of a struct that is defined once; none if where they lie is not known."""
    found = [*re.finditer(_STRUCT.format(struct), text)]
    if len(found) != 1 or "#" in found[0][1] or not _is_outside(text[: found[0].start()]):
        return ()
    return _laid_out(found[0][1].split(";"), text)


def _laid_out(declarations: Iterable[str], text: str) -> tuple[_Member, ...]:
    """Where declarations lie, one behind the other; none if that is not known of one of them."""
    constants = _constants(text)
    members: list[_Member] = []
    end = 0
    for part in declarations:
        if not part.strip():
            continue
        if len(part) > _MOST:
            return ()
        aligns = [_number(a, constants) for a in _ALIGN.findall(part)]
        member = _MEMBER.fullmatch(_ALIGN.sub(" ", part).strip())
        if member is None:
            return ()
        size = _size(member[1])
        if size is None or None in aligns:
            return ()
        for one in member[2].split(","):
            declared = _DECLARATOR.fullmatch(one)
            if declared is None:
                return ()
            extents = [_number(e, constants) for e in _EXTENT.findall(declared[2])]
            if not all(extents):
                return ()
            align = max(size, *(a or 1 for a in aligns), 1)
            offset = -(-end // align) * align
            members.append(_Member(declared[1], offset, size, tuple(e or 0 for e in extents)))
            end = members[-1].end
    return tuple(members)


def _size(kind: str) -> int | None:
    """The bytes of a type."""
    words = dict.fromkeys(kind.strip().removeprefix("std::").split())  # long long is long
    return _SIZES.get(" ".join(word for word in words if word not in _SIGNS) or "int")


def _is_outside(before: str) -> bool:
    """Whether what comes behind a text stands in nothing but namespaces, and is no template."""
    heads: list[str] = []
    begin = 0
    for at, char in enumerate(before):
        if char == "{":
            heads.append(before[begin:at])
        elif char == "}" and heads:
            heads.pop()
        if char in "{};":
            begin = at + 1
    return "template" not in before[begin:] and all(
        re.search(r"\b(?:namespace|extern)\b", head) for head in heads
    )


# ------------------------------------------------------------------ named barriers


def named_barrier_name(number: int, places: Iterable[tuple[tuple[str, int], ...]]) -> str | None:
    """The constant with a number that the source passes where it is the one of a named barrier;
    None if it passes none there, or several. ``places``: of each instruction files and lines of the
    functions around it, from the kernel's inwards."""
    names = {name for around in places if (name := _passed(number, around)) is not None}
    return names.pop() if len(names) == 1 else None


def _passed(number: int, around: tuple[tuple[str, int], ...]) -> str | None:
    for file, line in around:
        lines = _cuda(file)
        if not 0 < line <= len(lines):
            continue
        constants = _constants(_plain(lines))
        words = re.findall(r"[A-Za-z_]\w*(?:::\w+)*", _plain(lines[line - 1 : line]))
        found = {w for w in words if constants.get(w.rpartition("::")[2]) == number}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


# ------------------------------------------------------------------ C++ as text


def _cuda(file: str) -> tuple[str, ...]:
    """The lines of a CUDA source; none if it is none or not at hand."""
    return source_lines(file, silent=True) if file.endswith(CUDA_ENDINGS) else ()


def _plain(lines: Iterable[str]) -> str:
    """A text in as many lines without comments."""
    return _without_comments("\n".join(lines))


def _without_comments(text: str) -> str:
    """A text in as many lines without comments."""
    return _NOISE.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), text)


_CONSTANT = re.compile(
    r"\bconstexpr\s+(?:static\s+|inline\s+)?(?:std::)?\w+(?:\s+\w+){0,2}?\s+(\w+)\s*=\s*([^;{}]{0,120});"
    r"|^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]*)",
    re.MULTILINE,
)
_SIZEOF = re.compile(r"\bsizeof\s*\(([\w: ]+)\)")
_ENUM = re.compile(r"\benum\b[^;{}]*\{([^{}]*)\}")


@lru_cache(maxsize=16)
def _constants(text: str) -> dict[str, int]:
    """The whole numbers that a text gives names, but for names that it gives several times."""
    given = [(m[1] or m[3], m[2] or m[4]) for m in _CONSTANT.finditer(text)]
    for enum in _ENUM.findall(text):
        before = ""
        for part in enum.split(","):
            name, _, value = (one.strip() for one in part.partition("="))
            if name:
                given.append((name, value or (f"{before} + 1" if before else "0")))
                before = name
    # what a condition of the preprocessor decides, the command line may say
    given += re.findall(r"(?:#[ \t]*define|constexpr\s+\w+)\s+(\w+)()", _conditional(text))
    times = Counter(name for name, _ in given)
    found: dict[str, int] = {}
    for name, value in given:
        number = _number(value, found) if times[name] == 1 else None
        if number is not None:
            found[name] = number
    return found


def _conditional(text: str) -> str:
    """The lines that a condition of the preprocessor may leave out."""
    found, depth = list[str](), 0
    for line in text.split("\n"):
        word = line.lstrip(" \t#") if line.lstrip().startswith("#") else ""
        depth += word.startswith("if") - word.startswith("endif")
        if depth > 0:
            found.append(line)
    return "\n".join(found)


_OPERATIONS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
#: characters of an expression that is evaluated, or of a declaration
_MOST = 120


def number_of(text: str, lines: Iterable[str]) -> int | None:
    """The number that an expression is in a source with these lines, with ``sizeof`` of types of
    known sizes; None if it is not known."""
    text = _SIZEOF.sub(lambda found: str(_size(found[1]) or found[0]), text)
    return _number(text, _constants(_plain(lines)))


def _number(text: str, constants: dict[str, int]) -> int | None:
    """The number that an expression is, of names that are known."""
    text = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text.strip()).replace("/", "//")
    if len(text) > _MOST or "\n" in text:
        return None
    try:
        return _value(ast.parse(text, mode="eval").body, constants)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, constants: dict[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return constants[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            found: int = _OPERATIONS[type(op)](_value(left, constants), _value(right, constants))
            if abs(found) < 1 << 62:
                return found
    raise ValueError(ast.dump(node))


def _end(text: str, opening: int) -> int:
    """Behind the bracket that closes the one at a place; the end of the text if none does."""
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if not depth:
            return at + 1
    return len(text)


_OPEN, _CLOSE = "([{<", ")]}>"


def _parts(text: str, begin: int) -> Iterator[str]:
    """What stands between commas up to the closing bracket; nothing between brackets is nothing."""
    depth, start = 1, begin
    for at in range(begin, len(text)):
        depth += (text[at] in _OPEN) - (text[at] in _CLOSE)
        if depth == 0 or (depth == 1 and text[at] == ","):
            part = text[start:at].strip()
            if part not in ("", "void"):
                yield part
            start = at + 1
        if depth == 0:
            return
