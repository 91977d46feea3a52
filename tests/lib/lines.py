"""Which lines of a kernel a finding names, by the marks ``# @name`` in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tilesim.dsl.kernel import Kernel
from tilesim.findings.finding import Finding

_MARK = re.compile(r"# @(\w+)")


@cache
def _lines(file: str) -> tuple[str, ...]:
    return tuple(Path(file).read_text().splitlines())


def marks(kernel: Kernel, finding: Finding) -> tuple[str, ...]:
    """The marks of the lines that ``finding`` names, the one to change first; ``?`` for a line
    without a mark. All of them lie in the kernel, none in the library."""
    text = _lines(kernel.function.__code__.co_filename)
    for loc in finding.locations:
        assert loc.function == kernel.function.__name__, loc
        assert Path(loc.file).name == Path(kernel.function.__code__.co_filename).name, loc
    found = (_MARK.search(text[loc.line - 1]) for loc in finding.locations)
    return tuple(m[1] if m else "?" for m in found)


def roles(finding: Finding) -> set[str]:
    """Who takes part."""
    return {p.role for p in finding.participants}
