"""Regions of a kernel under construction: what a ``with`` block records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import update_wrapper
from types import CodeType, TracebackType
from typing import Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar

from tilesim.dsl.loop_state import LOOPS, Declares, Iteration
from tilesim.errors import Diagnostic, reject
from tilesim.ir.loc import Loc, caller, user_frame


class Recorder(Declares, Protocol):
    """The builder."""

    unopened: list[Region[object]]
    codes: set[CodeType]


class Opener(Protocol):
    """What opens regions: the builder, and what is built on it."""

    @property
    def recorder(self) -> Recorder:
        """What records the statements of the kernel."""
        ...

    @property
    def called(self) -> str:
        """What a kernel usually calls it, for messages."""
        ...


Bound = TypeVar("Bound", covariant=True)
Builds = TypeVar("Builds", bound=Opener)
Given = ParamSpec("Given")


class Region(AbstractContextManager[Bound], Generic[Bound]):
    """A role, a loop or a branch; nothing belongs to it until a ``with`` statement enters it."""

    def __init__(
        self, what: str, loc: Loc, body: AbstractContextManager[Bound], opener: Opener
    ) -> None:
        self._what = what
        self._loc = loc
        self._body = body
        self._opener = opener
        self._iteration: Iteration | None = None
        opener.recorder.unopened.append(self)
        frame = user_frame()
        if frame is not None:
            opener.recorder.codes.add(frame.f_code)

    def __enter__(self) -> Bound:
        recorder = self._opener.recorder
        if all(r is not self for r in recorder.unopened):
            raise reject(
                f"this {self._what} has been entered before: a region is entered once",
                caller(), rule="region", fix=f"call {self._opener.called}.{self._what}(...) again",
            )  # fmt: skip
        recorder.unopened[:] = [r for r in recorder.unopened if r is not self]
        if self._what in LOOPS:
            self._iteration = recorder.iterations.begins(recorder)
        return self._body.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        passed = self._body.__exit__(kind, value, traceback)
        if kind is None and self._iteration is not None:
            self._opener.recorder.iterations.ends(self._iteration)
        return passed

    def __iter__(self) -> NoReturn:
        raise reject(
            f"{self._what} is not a Python iterable: it is a region of the kernel",
            caller(),
            rule="region",
            fix=f"write `with {self._opener.called}.{self._what}(...) as i:`",
        )

    def problem(self) -> Diagnostic:
        """Why a kernel in which the region has not been entered is rejected."""
        return Diagnostic(
            "region",
            f"{self._what} opens a region, but no `with` statement enters it: what follows "
            "would be outside of it",
            self._loc,
            f"write `with {self._opener.called}.{self._what}(...):` and indent what belongs to it",
        )


def region(
    body: Callable[Concatenate[Builds, Given], Iterator[Bound]],
) -> Callable[Concatenate[Builds, Given], Region[Bound]]:
    """Decorator: a generator of the builder, as `contextmanager` takes it, that opens a region."""
    enter = contextmanager(body)

    def opens(builder: Builds, /, *args: Given.args, **kwargs: Given.kwargs) -> Region[Bound]:
        return Region(body.__name__, caller(), enter(builder, *args, **kwargs), builder)

    update_wrapper(opens, body)
    return opens
