"""Which instruction an opcode is: the templates of `tilesim.ir.spelling`, prepared for reading.

An opcode is looked up among the spellings of all instructions that there are. Qualifiers may stand
in any order, those that could mean several things in the template's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from tilesim.arith.types import WIDTH
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import OPS, Op
from tilesim.ir.spelling import Parts, Slot, Spelling, spellings
from tilesim.records import dataclass, field, fields

#: state spaces that an address may be into
_SPACES = ("shared::cta", "shared::cluster", "shared", "global")
_VECTORS = ("v2", "v4", "v8")
#: a text that is computed from other attributes, by what computes it; those that it may be are
#: better listed (as a `Literal`): any qualifier looks like one of these
_DERIVED = {str: r"[\w:]+", int: r"\d+"}
#: the value of a qualifier that says that there is an operand
_ANNOUNCED = object()
#: hints for caches, which every access may have
_CACHES = ("L1::", "L2::")


# ---------------------------------------------------------------------- opcodes


@dataclass(frozen=True)
class Reading:
    """What an opcode says: the values of fields, and the texts of parts of operands (their state
    space, their type) and of attributes that others give."""

    form: Form
    values: Mapping[str, object]
    texts: Mapping[tuple[str, str], str]
    #: optional operands that a qualifier announces, and whether it did
    announced: Mapping[str, bool]
    #: the type that the opcode ends with
    width: int

    def text(self, name: str, *parts: str) -> str | None:
        """The text of the first of these parts that was there."""
        return next((self.texts[name, p] for p in parts if (name, p) in self.texts), None)


@dataclass(frozen=True)
class _Choices:
    """What a slot may be: the value by text; none are listed for a text that is derived."""

    slot: Slot
    values: Mapping[str, object]
    #: of the field; `MISSING`: it has none
    default: object = None
    derived: str = ""

    @property
    def pattern(self) -> str:
        return "|".join(re.escape(text) for text in self.values) or self.derived


@dataclass(frozen=True)
class _Segment:
    """One qualifier: a regular expression with a group for each slot in it."""

    pattern: re.Pattern[str]
    choices: tuple[_Choices, ...]
    optional: bool


@dataclass
class _Taken:
    """What qualifiers have said so far."""

    values: dict[str, object] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    announced: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Form:
    """One spelling of a class of instructions, prepared for reading.

    ``slots``: its operands in order; ``kinds``: what they are, by name; ``spaces``: of which its
    opcode may name the state space, ``space`` the one that it always names. ``names`` are those of
    all fields, ``required`` those of fields that are never None.
    """

    cls: type[Op]
    template: str
    base: str
    segments: tuple[_Segment, ...]
    patterns: tuple[Pattern, ...]
    slots: tuple[Slot, ...]
    kinds: Mapping[str, Kind]
    spaces: frozenset[str]
    space: str
    names: frozenset[str]
    required: frozenset[str]

    def read(self, qualifiers: list[str]) -> Reading | None:
        """What qualifiers say, if they are this form's."""
        left = [q for q in qualifiers if not q.startswith(_CACHES)]
        width = WIDTH.get(left[-1], 32) if left else 32
        taken = _Taken()
        for segment in self.segments:
            for place, text in enumerate(left):
                match = segment.pattern.fullmatch(text)
                if match is not None:
                    del left[place]
                    _take(taken, segment, match)
                    break
            else:
                if not segment.optional or not _leave(taken, segment):
                    return None
        if any(q not in self.cls.hints for q in left):
            return None
        return Reading(self, taken.values, taken.texts, taken.announced, max(32, width))


def _take(taken: _Taken, segment: _Segment, match: re.Match[str]) -> None:
    for choices, text in zip(segment.choices, match.groups(), strict=True):
        slot = choices.slot
        if slot.part or not choices.values:
            taken.texts[slot.name, slot.part] = text
        elif choices.values[text] is _ANNOUNCED:
            taken.announced[slot.name] = True
        else:
            taken.values[slot.name] = choices.values[text]


def _leave(taken: _Taken, segment: _Segment) -> bool:
    """Whether an optional qualifier may be missing; notes what that means."""
    for choices in segment.choices:
        name = choices.slot.name
        if _ANNOUNCED in choices.values.values():
            taken.announced[name] = False
        elif any(value is True for value in choices.values.values()):
            taken.values[name] = False
        elif choices.values and not choices.slot.part and choices.default is MISSING:
            return False
    return True


# ---------------------------------------------------------------------- operands


@dataclass(frozen=True)
class InBrackets:
    """``[a, b, ...]``."""

    items: tuple[Pattern, ...]


@dataclass(frozen=True)
class Two:
    """``a|b``."""

    first: Pattern
    second: Pattern


@dataclass(frozen=True)
class Named:
    """``%{name}``: a special register."""

    slot: Slot


#: what an operand looks like; a text is itself
Pattern: TypeAlias = "Slot | str | InBrackets | Two | Named"
#: what an operand is read as
Kind = Literal["result", "results", "value", "values", "view", "mbar", "number", "numbers", "name"]

_KINDS: dict[object, Kind] = {
    Var: "result", tuple[Var, ...]: "results", Expr: "value", tuple[Expr, ...]: "values",
    View: "view", Mbar: "mbar", int: "number", tuple[int, int]: "numbers", str: "name",
}  # fmt: skip
_TOKEN = re.compile(r"[\[\]|,%]|\w+")


def _patterns(tokens: Iterator[str | Slot]) -> tuple[Pattern, ...]:
    """Operands, up to the end or a closing bracket."""
    found: list[Pattern] = []
    for token in tokens:
        if token == "]":
            break
        if token == "|":
            found[-1] = Two(found[-1], _pattern(next(tokens), tokens))
        elif token != ",":
            found.append(_pattern(token, tokens))
    return tuple(found)


def _pattern(token: str | Slot, tokens: Iterator[str | Slot]) -> Pattern:
    if token == "[":
        return InBrackets(_patterns(tokens))
    if token == "%":
        slot = next(tokens)
        assert isinstance(slot, Slot)
        return Named(slot)
    return token


def _tokens(parts: Parts) -> Iterator[str | Slot]:
    for part in parts:
        if isinstance(part, str):
            yield from _TOKEN.findall(part)
        else:
            yield part


# ---------------------------------------------------------------------- classes


def forms_of(cls: type) -> tuple[Form, ...]:
    """The spellings of a class of instructions, prepared for reading."""
    return _forms_of(cls)


@cache
def _forms_of(cls: Any) -> tuple[Form, ...]:
    templates = (cls.ptx, *cls.also)
    return tuple(_form(cls, *pair) for pair in zip(templates, spellings(cls), strict=True))


def _form(cls: Any, template: str, parsed: Spelling) -> Form:
    hints = get_type_hints(cls)
    (base, *_), *rest = _split(parsed.opcode)
    assert isinstance(base, str)
    segments = tuple(_segment(cls, hints, parts) for parts in rest)
    kinds = {slot.name: _kind(hints.get(slot.name, int)) for slot in parsed.slots()}
    spaces = {p.name for p in parsed.opcode if isinstance(p, Slot) and p.part == "space"}
    space = next((parts[0] for parts in rest if parts[0] in _SPACES), "")
    names = {f.name for f in fields(cls)}
    required = {name for name in names if type(None) not in _options(hints[name])}
    return Form(
        cls, template, base, segments, _patterns(_tokens(parsed.operands)), parsed.slots(), kinds,
        frozenset(spaces), space, frozenset(names), frozenset(required),
    )  # fmt: skip


def _split(parts: Parts) -> list[list[str | Slot]]:
    """The parts of an opcode between its dots."""
    found: list[list[str | Slot]] = [[]]
    for part in parts:
        if isinstance(part, Slot):
            if part.mark or part.part in ("space", "vec"):
                found.append([])
            found[-1].append(part)
            continue
        first, *others = part.split(".")
        if first:
            found[-1].append(first)
        found += [[text] if text else [] for text in others]
    return found


def _segment(cls: Any, hints: Mapping[str, Any], parts: list[str | Slot]) -> _Segment:
    pattern, choices = "", []
    for part in parts:
        if isinstance(part, str):
            pattern += re.escape(part)
        else:
            choices.append(_choices(cls, hints, part))
            pattern += f"({choices[-1].pattern})"
    slots = [c.slot for c in choices]
    optional = any(s.mark or s.part == "vec" or (s.part == "space" and not s.text) for s in slots)
    return _Segment(re.compile(pattern), tuple(choices), optional)


def _choices(cls: Any, hints: Mapping[str, Any], slot: Slot) -> _Choices:
    match slot.part:
        case "space":
            spaces = slot.text.split("|") if slot.text else _SPACES
            more = ("shared",) if "shared::cta" in spaces else ()
            return _Choices(slot, {text: text for text in (*spaces, *more)})
        case "type" | "element" | "reduced":
            return _Choices(slot, {text: text for text in WIDTH if text != "pred"})
        case "vec":
            return _Choices(slot, {text: text for text in _VECTORS})
        case _:
            pass
    own = {f.name: f for f in fields(cls)}
    if slot.name not in own:
        fixed = getattr(cls, slot.name)
        if isinstance(fixed, str):
            return _Choices(slot, {fixed: fixed})
        kind, *_ = _options(get_type_hints(fixed.fget)["return"])
        if get_origin(kind) is Literal:
            texts = [re.escape(text) for text in get_args(kind) if text]
            return _Choices(slot, {}, derived="|".join(texts))
        return _Choices(slot, {}, derived=_DERIVED[kind])
    default = own[slot.name].default
    values: dict[str, object] = {}
    for option in _options(hints[slot.name]):
        if option is bool:
            values[slot.text or slot.name] = True
        elif get_origin(option) is Literal:
            for value in get_args(option):
                values[slot.text.replace("*", str(value)) or str(value)] = value
        elif option is not type(None):
            values[slot.text] = _ANNOUNCED
    return _Choices(slot, values, default)


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _kind(hint: Any) -> Kind:
    for option in _options(hint):
        if get_origin(option) is Literal:
            return "name"
        if option in _KINDS:
            return _KINDS[option]
    raise TypeError(f"no operand is read as {hint}")


# ---------------------------------------------------------------------- all of them


class Forms:
    """Looks for the form of an opcode, among all instructions that are defined now."""

    def __init__(self) -> None:
        self._by_base: dict[str, list[type[Op]]] = {}
        for cls in OPS.values():
            if cls.ptx:
                names = [f.base for f in forms_of(cls)]
                for base in {*names, *(s.partition(".")[0] for s in cls.synonyms)}:
                    self._by_base.setdefault(base, []).append(cls)
        self._known: dict[str, Reading | None] = {}

    def of(self, opcode: str) -> Reading | None:
        """What an opcode says, if it is some instruction's."""
        if opcode not in self._known:
            self._known[opcode] = self._find(opcode)
        return self._known[opcode]

    def _find(self, opcode: str) -> Reading | None:
        base, *qualifiers = opcode.split(".")
        for cls in self._by_base.get(base, ()):
            for name, texts in _names(cls, base, qualifiers):
                for form in forms_of(cls):
                    found = form.read(texts) if form.base == name else None
                    if found is not None:
                        return found
        return None


def _names(cls: type[Op], base: str, qualifiers: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The opcode as it stands, and with each synonym replaced."""
    yield base, qualifiers
    for other, meant in cls.synonyms.items():
        first, *needed = other.split(".")
        if first == base and set(needed) <= set(qualifiers):
            name, *texts = meant.split(".")
            yield name, [*texts, *(q for q in qualifiers if q not in needed)]
