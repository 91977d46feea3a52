"""``@mark.check``: the marker of the pytest plugin, with the arguments spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Program


def check(
    subject: Kernel | Program,
    *,
    params: Mapping[str, Any] | None = None,
    expect: str = "",
    accept: Literal["", "bounded"] = "",
    **options: Any,
) -> Any:
    """Marks a test function: ``subject`` is checked before its body runs.

    Args:
        params: values per parameter of the kernel; every combination is a test of its own.
        expect: the rule that the check must find; without one it must find nothing.
        accept: ``"bounded"`` also passes kernels that are not proved but failed on no schedule.
        options: ``strict``, ``budget``, ``schedules``, ``seed`` and ``inputs`` of `tilesim.check`;
            ``deny``: names of what a proof must not lean on (`tilesim.checker.assumptions`);
            ``sass``: also compare the machine code that NVRTC makes of it with its PTX.
    """
    import pytest

    values = {} if params is None else params
    given = {"params": values, "expect": expect, "accept": accept, **options}
    return pytest.mark.tilesim(subject, **given)
