"""Words that messages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#\[)", re.MULTILINE)


def count(number: int, what: str, several: str = "") -> str:
    """``1 schedule``, ``2,000 schedules``; ``several`` is a plural that does not end in s alone."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def numbered(what: str, numbers: Sequence[int]) -> str:
    """``warp 4``, ``warps 1-3, 7``: things by their numbers, of which there is at least one."""
    return f"{what}{'' if len(numbers) == 1 else 's'} {ranges(numbers)}"


def rough(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 5 min``: about so long."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def did_you_mean(name: str, available: Iterable[str]) -> str:
    """A clause with the names that resemble ``name``; empty if none does."""
    others = [other for other in available if other != name]
    close = get_close_matches(name[:256], others, n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def printable(text: str, keep: str = "\n\t") -> str:
    """``text`` with escapes for what a terminal would obey or hide: control characters but those to
    ``keep``, what turns the direction of writing, and halves of characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def inert(text: str) -> str:
    """``text`` without what GitHub's runner takes for a command in a log: a line that begins with
    ``::``, blanks aside, and ``##[`` anywhere."""
    return _COMMAND.sub(lambda found: f"{found[1] or ''}{_escaped(found[0][-1])}", text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def ranges(numbers: Sequence[int]) -> str:
    """``1-3, 7`` for 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
