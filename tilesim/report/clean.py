"""Results as they can be shown: names, messages and paths come from files that anybody wrote."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tilesim.sim.observers.timeline import Recording
from tilesim.transforms.rewrite import Patch
from tilesim.wording import printable

T = TypeVar("T")
#: fields of several lines; everything else is in one
_MESSAGES = frozenset({"message", "notes", "fix", "cause", "covers", "reasons", "diagram"})
#: what is no text, or is written to a file as it is
_KEPT = (Recording, Patch)


def clean(result: T) -> T:
    """``result``, or a part of one, with escapes for what is no printable character in it."""
    cleaned: T = _clean(result, "\t")
    return cleaned


def _clean(value: Any, keep: str) -> Any:
    if isinstance(value, str):
        return printable(value, keep)
    if isinstance(value, tuple) and type(value) is tuple:
        items = tuple(_clean(item, keep) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if not is_dataclass(value) or isinstance(value, (type, *_KEPT)):
        return value
    changed = {}
    for field in fields(value):
        old = getattr(value, field.name)
        new = _clean(old, "\n\t" if field.name in _MESSAGES else keep)
        if new is not old:
            changed[field.name] = new
    return replace(value, **changed) if changed else value
