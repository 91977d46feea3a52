"""Comparisons of tensors that have no values: they are counted, wherever they were imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from tilesim.recording.left_out import LeftOut, counted, left_out


class Described:
    """A tensor with a shape and no storage."""


def _allclose(one: Any, other: Any, *, rtol: float = 0.0) -> bool:
    return bool(abs(one - other) <= rtol)


def _assert_close(one: Any, other: Any, msg: str = "") -> None:
    if one != other:
        raise AssertionError(msg)


COMPARING: dict[str, dict[str, bool | None]] = {
    "standin": {"allclose": True}, "standin.Tensor": {"equal": True},
    "standin.testing": {"assert_close": None, "no_such": None}, "not.loaded": {"equal": True},
}  # fmt: skip


@pytest.fixture(autouse=True)
def standin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A library with tensors, and a module of tests that has imported from it by name."""

    class Tensor(Described):
        def equal(self, other: object) -> bool:
            return self is other

    library, testing = ModuleType("standin"), ModuleType("standin.testing")
    library.__dict__.update(allclose=_allclose, Tensor=Tensor, testing=testing)
    testing.__dict__.update(assert_close=_assert_close)
    tests = ModuleType("their_tests")
    tests.__dict__.update(same=_allclose, assert_close=_assert_close)
    for module in (library, testing, tests):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return tests


@contextmanager
def compared() -> Iterator[list[LeftOut]]:
    found: list[LeftOut] = []
    with left_out(found.append, lambda of: not isinstance(of, Described), comparing=COMPARING):
        yield found


def test_what_has_no_values_is_counted_in_every_module(standin: Any) -> None:
    library: Any = sys.modules["standin"]
    tensor = library.Tensor()
    with compared() as found:
        library.testing.assert_close(tensor, 1)
        standin.assert_close({"out": [1, tensor]}, {"out": [1, 2]})
        assert library.allclose(1, tensor)
        assert standin.same(tensor, tensor, rtol=1e-3)
        assert tensor.equal(3)
    functions = [one.function for one in found]
    assert functions == [
        "standin.testing.assert_close", "standin.testing.assert_close", "standin.allclose",
        "standin.allclose", "standin.Tensor.equal",
    ]  # fmt: skip
    assert {one.where.rpartition(":")[0] for one in found} == {__file__}
    assert counted(functions) == (
        "5 comparisons of numbers not made: standin.Tensor.equal (1), standin.allclose (2), "
        "standin.testing.assert_close (2)"
    )


def test_what_has_values_is_compared(standin: Any) -> None:
    with compared() as found:
        assert not standin.same(1, 2)
        assert standin.same(1, 2, rtol=1)
        with pytest.raises(AssertionError, match="differ"):
            standin.assert_close([1], [2], msg="differ")
    assert not found
    assert counted(one.function for one in found) == ""


def test_what_was_imported_meanwhile_compares_again(standin: Any) -> None:
    with compared() as found:
        kept = standin.assert_close
        kept(Described(), 1)
    assert len(found) == 1
    assert standin.assert_close is _assert_close
    with pytest.raises(AssertionError):
        kept(1, 2)
    with pytest.raises(AssertionError):
        kept(Described(), 1)
    assert len(found) == 1


def test_each_kind_is_counted_by_itself() -> None:
    names = ["torch.Tensor.item", "torch.ops.x.y", "torch.allclose", "torch.compile", "torch.save"]
    assert counted([*names, "torch.Tensor.item", "torch.Tensor.format"]).split("; ") == [
        "3 numbers of tensors read as nan: torch.Tensor.format (1), torch.Tensor.item (2)",
        "1 comparison of numbers not made: torch.allclose (1)",
        "1 call run as written, its compiled kernels not seen: torch.compile (1)",
        "1 call of an operator in C++ not run: torch.ops.x.y (1)",
        "1 file not written: torch.save (1)",
    ]
    assert [LeftOut(name, "f.py:1").needs_values for name in names] == [
        True, False, True, False, False
    ]  # fmt: skip
