"""Who comes last, as CUDA's kernels find out: by what an atomic has found, told to all threads by a
word of shared memory. Right and wrong."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import HEAD, SOURCES, compiled, reported
from tilesim.checker import Report
from tilesim.ptx.launch import Contents, Launch, Pointer

SOURCE = (SOURCES / "last.cu").read_text()
CTAS = 3
TICKET, RESET = "atomicInc(&count, gridDim.x)", "count = 0;"
WRAPS = "atomicInc(&count, gridDim.x - 1)"


def run(*edits: tuple[str, str]) -> tuple[Report, set[str]]:
    """The report on the kernel with texts instead of others, and the lines that it names."""
    text = SOURCE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    values = Pointer("x", CTAS * 256), Pointer("part", CTAS * 4), Pointer("y", 4)
    zero = (("count", Contents("u32", (0,))),)
    launch = Launch("f", (CTAS, 1, 1), (64, 1, 1), params=values, variables=zero)
    return reported(HEAD + text, compiled(HEAD + text), launch)


RIGHT = {
    "inc": (),
    "inc that wraps": ((TICKET, WRAPS), (RESET, "")),
    "add": ((TICKET, "atomicAdd(&count, 1)"),),
    "volatile parts": (("float *part", "volatile float *part"),),
}


@needs.compiler
@pytest.mark.parametrize("name", RIGHT)
def test_the_last_one_adds_up(name: str) -> None:
    found, _ = run(*RIGHT[name])
    assert found.verdict == "proved", found
    assert "every ticket order of count" in found.covers


STORE, LOAD = "part[blockIdx.x] = sum;", "for (int i = t; i < gridDim.x; i += 64) sum += part[i];"
WRONG = {
    "no release": (("__threadfence();  // release", ""),),
    "no acquire": (("__threadfence();  // acquire", ""),),
    "no release, add": (("__threadfence();  // release", ""), (TICKET, "atomicAdd(&count, 1)")),
    "the last but one": (("gridDim.x - 1;", "gridDim.x - 2;"),),
    "it wraps too early": ((TICKET, "atomicInc(&count, 1)"), ("gridDim.x - 1;", "1;")),
}


@needs.compiler
@pytest.mark.parametrize("name", WRONG)
def test_what_the_last_one_reads_too_early(name: str) -> None:
    found, lines = run(*WRONG[name])
    assert found.verdict == "failed", found
    assert "race" in found.rules
    assert lines == {STORE, LOAD}


@needs.compiler
def test_volatile_parts_that_are_not_ordered() -> None:
    """Strong accesses are no race, but what they find is up to the schedule."""
    found, _ = run(("float *part", "volatile float *part"), ("__threadfence();  // release", ""))
    assert found.verdict == "bounded"
    assert any("unordered strong accesses" in reason for reason in found.reasons)
