"""Typed access to a decoded JSON document, with errors that say where in it something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from tilesim.ptx.errors import LaunchError
from tilesim.words import did_you_mean

T = TypeVar("T")
#: entries of a list, characters of a text
MOST = 1 << 20
LARGEST = 1 << 48


class Fields:
    """An object of the document; every field that is read is taken, what is left is an error."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            raise LaunchError(f"{path}: expected an object, found {shown(value)}")
        self._left: dict[str, Any] = dict(value)
        self._known: list[str] = []

    def fail(self, key: str, what: str) -> NoReturn:
        """Raises for a field."""
        raise LaunchError(f"{self.path}.{key}: {what}")

    def end(self) -> None:
        """All fields must have been read."""
        for key in self._left:
            hint = did_you_mean(str(key), self._known)
            self.fail(str(key), f"is not known here{hint}; there are {', '.join(self._known)}")

    def _take(self, key: str) -> Any:
        self._known.append(key)
        return self._left.pop(key, None)

    def text(self, key: str, default: str | None = None) -> str:
        """A text; required without a default."""
        value = self._take(key)
        if value is None:
            if default is None:
                self.fail(key, "is missing")
            return default
        if not isinstance(value, str) or len(value) > MOST:
            self.fail(key, f"expected a text, found {shown(value)}")
        return value

    def choice(self, key: str, allowed: tuple[T, ...], default: T | None = None) -> T:
        """One of some values."""
        value = self._take(key)
        if value is None and default is not None:
            return default
        for one in allowed:
            if type(one) is type(value) and one == value:
                return one
        names = ", ".join(map(str, allowed))
        what = "is missing" if value is None else f"{shown(value)} is not one of"
        return self.fail(key, f"{what}{':' if value is None else ''} {names}")

    def flag(self, key: str) -> bool:
        """A truth value, false if it is missing."""
        value = self._take(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.fail(key, f"expected true or false, found {shown(value)}")
        return value

    def integer(
        self, key: str, default: int | None = None, *, low: int = 0, high: int = LARGEST
    ) -> int:
        """An integer between bounds; required without a default."""
        value = self._take(key)
        if value is None:
            if default is None:
                self.fail(key, "is missing")
            return default
        return self._integer(key, value, low, high)

    def _integer(self, key: str, value: object, low: int, high: int) -> int:
        if type(value) is not int:
            self.fail(key, f"expected an integer, found {shown(value)}")
        if not low <= value <= high:
            self.fail(key, f"{shown(value)} is outside {low}..{high}")
        return value

    def optional(self, key: str, *, low: int = 0) -> int | None:
        """An integer, or None if it is missing."""
        value = self._take(key)
        return None if value is None else self._integer(key, value, low, LARGEST)

    def number(self, key: str) -> int | float | None:
        """An integer or a float; None (``null``): not known."""
        value = self._take(key)
        if value is None or type(value) in (int, float):
            return float(value) if isinstance(value, float) else value
        if isinstance(value, bool):
            return int(value)
        return self.fail(key, f"expected a number or null, found {shown(value)}")

    def integers(
        self, key: str, *, low: int, high: int, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """A list of integers; required without a default."""
        value = self._take(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            self.fail(key, f"expected a list of integers, found {shown(value)}")
        return tuple(self._integer(f"{key}[{i}]", v, low, high) for i, v in enumerate(value))

    def items(
        self, key: str, low: int, high: int, other: Callable[[Fields], T]
    ) -> tuple[int | T, ...]:
        """A list of integers, and of objects as ``other`` reads them."""
        value = self._take(key)
        if not isinstance(value, list):
            self.fail(key, f"expected a list of integers, found {shown(value)}")
        return tuple(
            other(Fields(item, f"{self.path}.{key}[{i}]")) if isinstance(item, dict)
            else self._integer(f"{key}[{i}]", item, low, high)
            for i, item in enumerate(value)
        )  # fmt: skip

    def triple(self, key: str, default: tuple[int, int, int] | None = None) -> tuple[int, int, int]:
        """Three sizes, x first; missing ones are 1."""
        numbers = self.integers(key, low=1, high=(1 << 31) - 1, default=default)
        if not 1 <= len(numbers) <= 3:
            self.fail(key, f"expected 1 to 3 numbers, found {len(numbers)}")
        x, y, z = (*numbers, 1, 1)[:3]
        return x, y, z

    def object(self, key: str) -> Fields | None:
        """An object, or None if it is missing."""
        value = self._take(key)
        return None if value is None else Fields(value, f"{self.path}.{key}")

    def named(self, key: str) -> Iterator[tuple[str, Fields | None]]:
        """The members of an object with any names; None where one is ``null``."""
        inner = self.object(key)
        for name, value in () if inner is None else inner._left.items():
            yield name, None if value is None else Fields(value, f"{self.path}.{key}.{name}")

    def objects(self, key: str) -> Iterator[Fields]:
        """A list of objects, empty if it is missing."""
        value = self._take(key)
        if value is None:
            return
        if not isinstance(value, list):
            self.fail(key, f"expected a list, found {shown(value)}")
        for i, item in enumerate(value):
            yield Fields(item, f"{self.path}.{key}[{i}]")


def shown(value: object) -> str:
    """A value in a message, its beginning if it is long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
