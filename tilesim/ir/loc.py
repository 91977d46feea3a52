"""Annotations for reports: where in the user's file an instruction was written, and labels."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

from tilesim.records import dataclass, field

#: metadata of a field that says what findings call something; nothing else depends on it
LABEL: Final[dict[str, Any]] = {"label": True}

F = TypeVar("F", bound=Callable[..., object])

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: where programs are built: no line of theirs is one of the user's
_BUILDING = tuple(_PACKAGE + name for name in (f"ir{os.sep}", f"dsl{os.sep}", "records.py"))
#: how names of a notebook's cells begin
_CELL = "Cell In["
#: functions between that of a kernel and a line at most, of which the calls are said
_MOST_CALLS = 16
#: the code that calls the functions of kernels
_RECORDING: set[CodeType] = set()


@dataclass(frozen=True, slots=True)
class Loc:
    """A line of the user's source, and the function it is in.

    ``behind``: if PTX was read, the line of it, or that of a function called here that is inlined,
    and behind that the line of the PTX. ``calls``: of Python, where that function was called, and
    the one that calls it, up to the function of the kernel, for which there are none.
    ``inlined``: of PTX that initialises an mbarrier, files and lines of all functions around it,
    from the kernel's inwards.
    """

    file: str
    line: int
    function: str = ""
    behind: Loc | None = field(default=None, compare=False, repr=False)
    calls: tuple[Loc, ...] = field(default=(), compare=False, repr=False)
    inlined: tuple[tuple[str, int], ...] = field(default=(), compare=False, repr=False)

    @property
    def innermost(self) -> Loc:
        """The last line behind it: that of the PTX, if PTX was read."""
        return self if self.behind is None else self.behind.innermost

    @property
    def places(self) -> tuple[Loc, ...]:
        """It and what is behind it, one by one."""
        found, place = [self], self.behind
        while place is not None:
            found.append(place)
            place = place.behind
        return tuple(found)

    @property
    def written_places(self) -> tuple[Loc, ...]:
        """The same without the line of PTX: the lines of the source, from the kernel's inwards."""
        return self.places if self.behind is None else self.places[:-1]

    @property
    def around(self) -> tuple[tuple[str, int], ...]:
        """Files and lines of the functions around it, from the kernel's inwards, as far as they are
        known."""
        return self.inlined or tuple((place.file, place.line) for place in self.written_places)

    @property
    def chain(self) -> tuple[str, ...]:
        """It and what is behind it: ``kernel.cu:50``, ``kernel.cu:20``, ``kernel.ptx:300``."""
        return (str(self), *(place.short for place in self.places[1:]))

    @property
    def written(self) -> tuple[str, ...]:
        """The same without the line of PTX: the lines of the source, from the kernel's inwards."""
        chain = self.chain
        return chain if self.behind is None else chain[:-1]

    @property
    def whole(self) -> str:
        """The same in a sentence: ``kernel.cu:50 (kernel.cu:20, kernel.ptx:300)``."""
        first, *behind = self.chain
        return f"{first} ({', '.join(behind)})" if behind else first

    @property
    def short(self) -> str:
        """The last part of the file's path and the line."""
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


UNKNOWN = Loc("<unknown>", 0)


def caller() -> Loc:
    """The innermost frame outside ``tilesim.ir``: the line of the kernel that is being built.

    ``tilesim/kernels`` counts as user code, so gallery kernels report their own lines. A module of
    building blocks that sets ``__tilesim_helper__ = True`` is skipped: its callers' lines count.
    """
    frame = user_frame()
    if frame is None:
        return UNKNOWN
    return _line(frame, _calls(frame))


def _line(frame: FrameType, calls: tuple[Loc, ...] = ()) -> Loc:
    code = frame.f_code
    return Loc(shortened(code.co_filename), frame.f_lineno, code.co_name, calls=calls)


def _calls(frame: FrameType) -> tuple[Loc, ...]:
    """Where the function of a frame was called, up to the function of the kernel."""
    found: list[FrameType] = []
    above = frame.f_back
    while above is not None and len(found) < _MOST_CALLS:
        if above.f_code in _RECORDING:
            return tuple(map(_line, found))
        if _is_users(above):
            found.append(above)
        above = above.f_back
    return ()  # there is no such function: a program that is built step by step


def calls_kernels(function: F) -> F:
    """Marks a function as the one that calls the functions of kernels: where `Loc.calls` ends."""
    _RECORDING.add(function.__code__)
    return function


def user_frame() -> FrameType | None:
    """The frame whose line `caller` says."""
    return next(_users(sys._getframe(1)), None)


def user_frames() -> list[FrameType]:
    """The frames of users' functions, from `user_frame` to the function of the kernel."""
    found = []
    for frame in _users(sys._getframe(1)):
        found.append(frame)
        above = frame.f_back
        if above is None or above.f_code in _RECORDING:
            break
    return found


def _users(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if _is_users(frame):
            yield frame
        frame = frame.f_back


def _is_users(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    inside = path.startswith(_BUILDING) or "contextlib" in path
    return not inside and "__tilesim_helper__" not in frame.f_globals


def of_function(function: Callable[..., object]) -> Loc:
    """Where a function is defined (its ``def`` line, or its first decorator's)."""
    code = getattr(function, "__code__", None)
    if code is None:
        return caller()
    return Loc(shortened(code.co_filename), code.co_firstlineno, code.co_name)


def shortened(path: str) -> str:
    """``path`` relative to the working directory when it lies below it; of a cell of a notebook its
    name, ``Cell In[3]``."""
    if (cell := _cell(path)) is not None:
        return cell
    absolute = os.path.abspath(path)
    here = os.getcwd() + os.sep
    return absolute[len(here) :] if absolute.startswith(here) else absolute


def is_python(file: str) -> bool:
    """Whether a place in ``file`` is a line of Python."""
    return file.endswith(".py") or file.startswith(_CELL)


def _cell(path: str) -> str | None:
    """The name of a notebook's cell, which is compiled as a file that is not there; None: it is
    none. Its lines are kept under its name."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    name = None if named is None else named(path)
    if name is None:
        return None
    cell = " ".join(name)
    if path in linecache.cache:
        linecache.cache[cell] = linecache.cache[path]
    return cell
