"""What is left out while tensors have no values: noted, counted, and said.

Tests of kernels end with ``torch.testing.assert_close(out, expected)``. Where tensors have shapes
and no storage there is nothing to compare, and the answer is that they agree. That is no result:
each such answer is noted with its place, for the summary. So are numbers that a script reads, and
what else of it is not done. What has values is compared.
"""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tilesim.errors import UsageError
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
#: how names of operators begin
OPERATORS = "torch.ops."
_COMPARISON = "comparison of numbers not made", "comparisons of numbers not made"
_NUMBER = "number of a tensor read as nan", "numbers of tensors read as nan"
_OPERATOR = "call of an operator in C++ not run", "calls of operators in C++ not run"
_KINDS = {
    "torch.Tensor.item": _NUMBER, "torch.Tensor.tolist": _NUMBER, "torch.Tensor.format": _NUMBER,
    "torch.compile": (
        "call run as written, its compiled kernels not seen",
        "calls run as written, their compiled kernels not seen",
    ),
    "torch.save": ("file not written", "files not written"),
}  # fmt: skip
#: what stands between a script and us: it is called by the script, and calls us
_BETWEEN = (str(Path(__file__).parents[1]), str(Path(sysconfig.get_path("stdlib"))))
_LIBRARIES = ("torch", "triton", "numpy")


class Unavailable(UsageError):
    """A script needs what is not there: numbers of tensors, or the driver. The text says where, and
    what to do."""

    def __init__(self, what: str, why: str = "tensors have shapes and no values here") -> None:
        super().__init__(
            f"{caller()}: {what}: {why}. Leave it out where the environment variable "
            "TILESIM_CAPTURE is set"
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something not done: the ``function``, and ``where`` it was called, as ``file:line``."""

    function: str
    where: str

    @property
    def needs_values(self) -> bool:
        """Whether it is about numbers of tensors."""
        return _kind(self.function) in (_COMPARISON, _NUMBER)

    def __str__(self) -> str:
        return f"{self.function} at {self.where}"


def counted(functions: Iterable[str]) -> str:
    """``3 comparisons of numbers not made: torch.allclose (2), torch.testing.assert_close (1)``, of
    the function of each; kinds are separated by semicolons. Empty if there are none."""
    counts = Counter(functions)
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in sorted(counts):
        kinds.setdefault(_kind(name), []).append(name)
    return "; ".join(
        f"{total} {kind[total != 1]}: " + ", ".join(f"{name} ({counts[name]})" for name in names)
        for kind, names in kinds.items()
        for total in (sum(counts[name] for name in names),)
    )


def _kind(function: str) -> tuple[str, str]:
    """What was not done, of one and of several."""
    default = _OPERATOR if function.startswith(OPERATORS) else _COMPARISON
    return _KINDS.get(function, default)


def caller() -> str:
    """``file:line`` of the script, below what it has called of torch and of us."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_between(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_torch(depth: int) -> bool:
    """Whether the function that many calls up is one of torch."""
    module = str(sys._getframe(depth + 1).f_globals.get("__name__", ""))
    return module.partition(".")[0] == "torch"


def _is_between(file: str) -> bool:
    """Whether a file is one of ours, of Python, or of a library."""
    if "site-packages" in file:
        package = file.rpartition("site-packages")[2].lstrip("/").partition("/")[0]
        return package in _LIBRARIES or package == "tilesim"
    return file.startswith(("<", *_BETWEEN))


@contextmanager
def left_out(
    note: Callable[[LeftOut], None], has_values: Callable[[Any], bool],
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
        note: Callable[[LeftOut], None], has_values: Callable[[Any], bool],
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
            note(LeftOut(name, caller()))
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
