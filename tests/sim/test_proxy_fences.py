"""Which memory a proxy fence orders (H9), and that the one-way fences are halves (H10)."""

from __future__ import annotations

from typing import Literal

import pytest

from tilesim import Builder, kernel
from tilesim.checker import Report, check
from tilesim.ir.kernel import Kernel
from tilesim.ir.program import Strict
from tilesim.ir.types import f32

from ..kernels.mutate import line

Kind = Literal["", "all", "global", "shared::cta", "shared::cluster", "release", "acquire"]
STRICT: tuple[Strict, ...] = ("practice", "ptx")
THREADS = 64
#: what writes and what copies, first found here
LINES = {
    "staged": ("k.mem.store(buffer", "k.bulk.store(Y"),
    "reloaded": ("k.mem.store(X", "k.bulk.load(buffer"),
}


def _fence(k: Builder, kind: Kind) -> None:
    match kind:
        case "":
            pass
        case "all":
            k.fence.proxy_async()
        case "release" | "acquire":
            k.fence.proxy_async_generic(kind)
        case _:
            k.fence.proxy_async(kind)


def _name(value: object) -> str:
    return value.name if isinstance(value, Kernel) else str(value) or "none"


@kernel(warps=2)
def staged(k: Builder, *, writer: Kind = "", issuer: Kind = "") -> None:
    """Threads fill a buffer in shared memory, one of them sends it."""
    Y, buffer = k.tensor("Y", f32, (THREADS,)), k.shared("buffer", f32, (THREADS,))
    k.mem.store(buffer[k.thread_id], 1.0)
    _fence(k, writer)
    k.sync_threads()
    with k.one_thread():
        _fence(k, issuer)
        k.bulk.store(Y, buffer)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@kernel(warps=2)
def reloaded(k: Builder, *, writer: Kind = "", issuer: Kind = "") -> None:
    """Threads fill a tensor in global memory, one of them loads it."""
    X, buffer = k.tensor("X", f32, (THREADS,)), k.shared("buffer", f32, (THREADS,))
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.mem.store(X[k.thread_id], 1.0)
    _fence(k, writer)
    k.sync_threads()
    with k.one_thread():
        _fence(k, issuer)
        k.mbarrier.arrive_expect_tx(full, buffer.nbytes)
        k.bulk.load(buffer, X, full)
    k.mbarrier.wait(full, 0)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize(
    ("program", "writer", "issuer"),
    [
        (staged, "all", ""),
        (staged, "", "all"),
        (staged, "shared::cta", ""),
        (staged, "", "shared::cluster"),
        (staged, "release", "acquire"),
        (reloaded, "all", ""),
        (reloaded, "global", ""),
        (reloaded, "", "global"),
    ],
    ids=_name,
)
def test_the_fence_orders_the_two(
    program: Kernel, writer: Kind, issuer: Kind, strict: Strict
) -> None:
    assert check(program.build(writer=writer, issuer=issuer), strict=strict).verdict == "proved"


def _assert_unordered(report: Report, program: Kernel, note: str) -> None:
    assert report.verdict == "failed"
    assert report.rules == {"proxy-fence"}
    lines = {line(program, text, nth=1) for text in LINES[program.name]}
    assert all({loc.line for loc in f.locations} == lines for f in report.findings)
    assert all(note in " ".join(f.notes) for f in report.findings)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize(
    ("program", "writer", "issuer", "note"),
    [
        (staged, "", "", "memory: "),
        (staged, "global", "", "not one for shared memory (H9)"),
        (staged, "", "global", "not one for shared memory (H9)"),
        (staged, "release", "", "needs the acquire"),
        (staged, "", "release", "needs the acquire"),
        (staged, "acquire", "", "memory: "),
        (staged, "", "acquire", "memory: "),
        (staged, "acquire", "release", "needs the acquire"),
        (reloaded, "", "", "memory: "),
        (reloaded, "shared::cta", "", "not one for global memory (H9)"),
        (reloaded, "", "shared::cluster", "not one for global memory (H9)"),
        (reloaded, "release", "acquire", "not one for global memory (H9)"),
    ],
    ids=_name,
)
def test_the_fence_is_another_one(
    program: Kernel, writer: Kind, issuer: Kind, note: str, strict: Strict
) -> None:
    report = check(program.build(writer=writer, issuer=issuer), strict=strict)
    _assert_unordered(report, program, note)
