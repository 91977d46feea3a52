"""Comparisons of numbers while tensors have none: left out, and counted.

Tests of kernels end with ``torch.testing.assert_close(out, expected)``. Where tensors have shapes
and no storage there is nothing to compare, and the answer is that they agree. That is no result:
each such answer is noted with its place, for the summary of the tests. What has values is compared.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any
from unittest.mock import patch

from tilesim.records import dataclass

#: by module or class, the functions that compare numbers, and what they answer where these agree
COMPARING: Mapping[str, Mapping[str, bool | None]] = {
    "torch": {"allclose": True, "equal": True},
    "torch.Tensor": {"allclose": True, "equal": True},
    "torch.testing": {"assert_close": None},
    "triton.testing": {"assert_close": None},
    "numpy": {"allclose": True, "array_equal": True},
    "numpy.testing": {
        "assert_allclose": None, "assert_array_equal": None, "assert_equal": None,
        "assert_almost_equal": None, "assert_array_almost_equal": None,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """One that was left out: the ``function``, and ``where`` it was called, as ``file:line``."""

    function: str
    where: str

    def __str__(self) -> str:
        return f"{self.function} at {self.where}"


def counted(functions: Iterable[str]) -> str:
    """``3 comparisons of numbers not made: torch.allclose (2), torch.testing.assert_close (1)``, of
    the function of each; empty if there are none."""
    counts = Counter(functions)
    total = counts.total()
    if not total:
        return ""
    names = ", ".join(f"{name} ({n})" for name, n in sorted(counts.items()))
    return f"{total} {'comparison' if total == 1 else 'comparisons'} of numbers not made: {names}"


@contextmanager
def left_out(
    note: Callable[[Comparison], None], has_values: Callable[[Any], bool],
    real: Callable[[], AbstractContextManager[Any]] = nullcontext,
    comparing: Mapping[str, Mapping[str, bool | None]] = COMPARING,
) -> Iterator[None]:  # fmt: skip
    """Within it, functions that compare what has no values say that it agrees, and are noted.

    They are replaced in every module that has imported them by name. ``has_values``: whether an
    argument has some; comparisons of such arguments are made, within ``real``.
    """
    replaced: dict[int, _Replacement] = {}
    with ExitStack() as stack:
        for owner, functions in comparing.items():
            holder = _holder(owner)
            for name, answer in functions.items():
                original = getattr(holder, name, None)
                if original is not None and id(original) not in replaced:
                    left = _Replacement(f"{owner}.{name}", original, answer, note, has_values, real)
                    replaced[id(original)] = left
                    stack.enter_context(patch.object(holder, name, left.function))
        for module, bound, original in _bound(replaced):
            stack.enter_context(patch.object(module, bound, replaced[original].function))
        try:
            yield
        finally:
            for left in replaced.values():
                left.active = False


class _Replacement:
    """One replaced function. What was imported while it was replaced keeps it: it compares again
    when it is no longer ``active``."""

    def __init__(
        self, name: str, original: Callable[..., Any], answer: bool | None,
        note: Callable[[Comparison], None], has_values: Callable[[Any], bool],
        real: Callable[[], AbstractContextManager[Any]],
    ) -> None:  # fmt: skip
        self.active = True
        self.original = original

        @wraps(original)
        def function(*args: Any, **options: Any) -> Any:
            if not self.active:
                return original(*args, **options)
            if all(map(has_values, _parts([*args, *options.values()]))):
                with real():
                    return original(*args, **options)
            caller = sys._getframe(1)
            note(Comparison(name, f"{caller.f_code.co_filename}:{caller.f_lineno}"))
            return answer

        self.function = function


def _parts(values: Sequence[Any]) -> Iterator[Any]:
    """What is compared, within lists, tuples and dictionaries."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _parts(value)
        elif isinstance(value, Mapping):
            yield from _parts([*value.values()])
        else:
            yield value


def _holder(owner: str) -> Any:
    """A module that is loaded, or a class in one; None if it is not."""
    if owner in sys.modules:
        return sys.modules[owner]
    module, _, name = owner.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _bound(functions: Collection[int]) -> list[tuple[Any, str, int]]:
    """The modules that have some of these functions under a name, by ``id``."""
    return [
        (module, name, id(value))
        for module in [*sys.modules.values()]
        if isinstance(found := getattr(module, "__dict__", None), dict)
        for name, value in [*found.items()]
        if id(value) in functions
    ]
