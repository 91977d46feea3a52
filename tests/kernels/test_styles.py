"""Right kernels in styles that the gallery does not have: proved at both levels."""

from __future__ import annotations

import pytest

from tilesim import check
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict

from . import styles, styles_blackwell
from .shipping.rows import STRICT

KERNELS = [
    each
    for module in (styles, styles_blackwell)
    for each in vars(module).values()
    if isinstance(each, Kernel)
]


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_it_is_proved(kernel: Kernel, strict: Strict) -> None:
    report = check(kernel.build(), strict=strict)
    assert (report.verdict, report.findings) == ("proved", ()), report
