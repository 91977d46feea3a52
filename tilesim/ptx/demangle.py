"""C++ names of kernels and variables, which compilers mangle (Itanium C++ ABI, 5.1).

Read are qualified names, templates with types and numbers as arguments, and variables of functions
(``f::full#2`` is the second one of that name); what stands for an earlier part of the name inside
of arguments is printed as ``...``, and so are arguments of templates that make a name long. A name
with anything else stays as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char",
    "h": "unsigned char", "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int",
    "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long",
    "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double",
    "z": "...", "Dn": "nullptr_t", "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t",
}  # fmt: skip
#: before a type: what comes behind it, or in front
_BEHIND = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile", "r": " restrict"}
_SHORT = {"St": "std", "Sa": "std::allocator", "Ss": "std::string"}
_EARLIER = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
#: a suffix that compilers give to a copy of a name
_SUFFIX = re.compile(r"[.$][\w.$]*$")
_ELIDED = "..."
#: characters of a name that is shown with the arguments of its templates
_LONG = 80


class _Strange(Exception):
    """The name has a part that is not read."""


@lru_cache(maxsize=4096)
def readable(name: str) -> str:
    """A mangled name as it is written in C++, without the parameters of functions; another name as
    it is."""
    if not name.startswith("_Z"):
        return name
    try:
        reader = _Reader(_SUFFIX.sub("", name), 2)
        found = reader.encoding()
        reader.end()
    except (_Strange, RecursionError):
        return name
    return (found if len(found) <= _LONG else _without_arguments(found)) or name


def short(name: str) -> str:
    """A name as it is, or one that is long as it is written in C++."""
    return name if len(name) <= _LONG else readable(name)


def _without_arguments(name: str) -> str:
    """``gemm<float, Tile<4>>::full`` as ``gemm<...>::full``."""
    kept, depth = [], 0
    for letter in name:
        depth -= letter == ">"
        if not depth:
            kept.append(_ELIDED + letter if letter == ">" else letter)
        depth += letter == "<"
    return "".join(kept)


def shown(names: Iterable[str]) -> dict[str, str]:
    """Each name as it is shown: mangled if two would look alike."""
    found = {name: readable(name) for name in names}
    times = Counter(found.values())
    return {name: text if times[text] == 1 else name for name, text in found.items()}


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at

    def end(self) -> None:
        """Nothing may be left."""
        if self._at != len(self._text):
            raise _Strange

    def encoding(self) -> str:
        """A name, and the types of a function's parameters, which are not shown."""
        name = self._name()
        while self._at < len(self._text) and not self._text.startswith("E", self._at):
            self._type()
        return name

    def _is(self, what: str) -> bool:
        """Takes a text, if it comes next."""
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _number(self) -> int:
        digits = self._match(re.compile(r"\d{1,6}"))
        if digits is None:
            raise _Strange
        return int(digits)

    # ------------------------------------------------------------------ names

    def _name(self) -> str:
        if self._is("Z"):
            return self._local()
        if self._is("N"):
            parts: list[str] = []
            self._match(re.compile("[rVK]*[RO]?"))
            while not self._is("E"):
                parts = [*parts[:-1], parts[-1] + self._arguments()] if parts and self._next("I") \
                    else [*parts, self._part()]  # fmt: skip
            return "::".join(parts)
        prefix = "std::" if self._is("St") else ""
        name = prefix + self._part()
        return name + self._arguments() if self._next("I") else name

    def _local(self) -> str:
        function = self.encoding()
        if not self._is("E") or self._is("s"):
            raise _Strange
        name, same = self._name(), self._match(re.compile(r"_\d|__\d+_"))
        number = "" if same is None else f"#{int(same.strip('_')) + 2}"
        return f"{function}::{name}{number}"

    def _part(self) -> str:
        """One part of a qualified name."""
        for short, name in _SHORT.items():
            if self._is(short):
                return name
        if self._match(_EARLIER) is not None:
            return _ELIDED
        internal = self._is("L")
        length = self._number()
        name = self._text[self._at : self._at + length]
        if len(name) < length or not (name or internal):
            raise _Strange
        self._at += length
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def _next(self, what: str) -> bool:
        return self._text.startswith(what, self._at)

    # ------------------------------------------------------------------ types

    def _arguments(self) -> str:
        """The arguments of a template."""
        if not self._is("I"):
            raise _Strange
        found: list[str] = []
        while not self._is("E"):
            found.append(self._argument())
        return f"<{', '.join(found)}>"

    def _argument(self) -> str:
        if self._is("J"):  # a pack
            found: list[str] = []
            while not self._is("E"):
                found.append(self._argument())
            return ", ".join(found)
        if self._is("X"):
            kind = self._type()
            if not self._is("E"):
                raise _Strange
            return kind
        if not self._is("L"):
            return self._type()
        if self._is("_Z"):
            name = self.encoding()
        else:
            kind, sign = self._type(), "-" if self._is("n") else ""
            value = self._number()
            name = ("false", "true")[value] if kind == "bool" and value < 2 else f"{sign}{value}"
        if not self._is("E"):
            raise _Strange
        return name

    def _type(self) -> str:
        for code, behind in _BEHIND.items():
            if self._is(code):
                return self._type() + behind
        for code, name in _BUILTIN.items():
            if self._is(code):
                return name
        if self._is("Dp"):
            return self._type()
        if self._is("F"):
            kinds: list[str] = []
            while not self._is("E"):
                kinds.append(self._type())
            if not kinds:
                raise _Strange
            return f"{kinds[0]} ({', '.join(kinds[1:])})"
        if self._is("A"):
            size = self._number()
            if not self._is("_"):
                raise _Strange
            return f"{self._type()}[{size}]"
        if not self._next("St") and self._match(_EARLIER) is not None:
            return _ELIDED + (self._arguments() if self._next("I") else "")
        return self._name()
