"""Reports in a console and in a notebook (`tilesim.ir.display`): texts, and pages in a frame."""

from __future__ import annotations

from datetime import timedelta
from html import escape

import numpy as np

from tilesim.checker import check
from tilesim.checker.report import Report
from tilesim.checker.witness import retrace
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram, TilesimError
from tilesim.ir.program import Program
from tilesim.records import replace
from tilesim.report.html import render
from tilesim.report.html.diagram import drawn
from tilesim.report.result import DRAWN, Checked, Failure, Rejected, Result
from tilesim.report.text import result_text

#: what showing a kernel may take
_TIME = timedelta(seconds=5)
#: characters of a page in a notebook; without its pictures it may have more
_MOST = 29_000
#: pixels of a frame at most; longer pages scroll
_HEIGHT = 900


def text(thing: object) -> str:
    """The report as ``tilesim check`` prints it, without its last line end."""
    return result_text(_result(thing)).rstrip("\n")


def html(thing: object) -> str:
    """The report as ``tilesim check --html`` writes it, in a frame: a page has styles of its own.

    A kernel is checked with the defaults of its parameters, and a program as it is, for some
    seconds.
    """
    page = _page(_result(thing))
    height = min(_HEIGHT, 160 + 24 * page.count("\n<") // 2)
    return (
        f'<iframe srcdoc="{escape(page)}" title="tilesim report" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def _page(result: Result) -> str:
    """The page without the pictures that it has no room for: notebooks keep what they show."""
    page = render([result])
    for less in ({"recording": None}, {"recording": None, "diagram": ""}):
        if isinstance(result, Checked) and len(escape(page)) > _MOST:
            page = render([replace(result, **less)])
    return page


def _result(thing: object) -> Result:
    match thing:
        case Report():
            return Checked(thing.kernel, "", thing)
        case Program() | Kernel():
            return _checked(thing)
        case _:
            raise TypeError(f"{type(thing).__name__} is not a report, kernel or program")


def _checked(thing: Program | Kernel) -> Result:
    """The report on a kernel, with pictures if it is small."""
    try:
        program = thing.build() if isinstance(thing, Kernel) else thing
        inputs = None
        if isinstance(thing, Kernel) and thing.inputs is not None:
            inputs = thing.inputs(np.random.default_rng(0), **thing.params)
        report = check(program, inputs=inputs, time_limit=_TIME)
        recording = None
        if report.witness is not None and report.stats.instructions <= DRAWN:
            recording = retrace(program, report.witness, inputs)
        return Checked(
            thing.name, program.target.name, report, diagram=drawn(program), recording=recording
        )
    except InvalidProgram as error:
        return Rejected(thing.name, None, error.diagnostics)
    except TilesimError as error:
        return Failure(thing.name, str(error))
