"""Every kernel of `kernels` is what its lines say: see `tests.marked`."""

from __future__ import annotations

import pytest

from tests.marked import FOLDER, Marked, marked, told
from tilesim.checker import check

FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".ptx"))


@pytest.mark.parametrize("one", [kernel for path in FILES for kernel in marked(path)], ids=str)
def test_a_kernel_is_what_its_lines_say(one: Marked) -> None:
    assert one.errors
    for strict in one.levels:
        right = check(one.form(0), strict=strict)
        assert (right.verdict, right.findings) == (one.options.get("right", "proved"), ()), (
            strict,
            right,
        )
        for number, expected in one.errors.items():
            wrong = check(one.form(number), strict=strict)
            assert wrong.verdict == "failed", (strict, number, wrong)
            assert told(wrong, expected) == expected, (strict, number, wrong)
