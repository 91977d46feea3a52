"""What the documentation of a rule consists of."""

from __future__ import annotations

from textwrap import dedent

from tilesim.records import dataclass


@dataclass(frozen=True)
class RuleDoc:
    """The page of one rule.

    ``summary`` is one sentence (reports print it as *why*), ``explanation`` a few paragraphs,
    ``ptx`` names sections of the PTX ISA, ``rules`` the numbers of the semantics. ``buggy`` and
    ``fixed`` are complete kernels; checking ``buggy`` reports this rule and ``fixed`` is proved.
    Rules of machine code have none: no kernel breaks them, a compiler does.
    """

    name: str
    summary: str
    explanation: str
    ptx: tuple[str, ...]
    rules: tuple[str, ...]
    fix: str
    buggy: str = ""
    fixed: str = ""


def source(text: str) -> str:
    """A kernel's source with the import every example starts with."""
    return "import tilesim as ts\n\n\n" + dedent(text).strip("\n") + "\n"


def swap(text: str, *changes: tuple[str, str]) -> str:
    """``text`` with each (old, new) replaced; a fixed kernel differs in little from a buggy one."""
    for old, new in changes:
        assert old in text, f"{old!r} is not in the example"
        text = text.replace(old, new)
    return text


MBARRIER = "Parallel Synchronization and Communication Instructions: mbarrier"
PHASES = "mbarrier: phase of the mbarrier object"
TX = "mbarrier: tracking asynchronous operations (tx-count)"
ASYNC = "Data Movement Instructions: asynchronous copies and their completion mechanisms"
BULK = "Data Movement Instructions: cp.async.bulk"
BARRIER = "Parallel Synchronization and Communication Instructions: bar, barrier"
CLUSTER = "Parallel Synchronization and Communication Instructions: barrier.cluster"
MEMORY = "Memory Consistency Model: causality order"
NONCOHERENT = "Data Movement and Conversion Instructions: ld.global.nc"
PROXIES = "Memory Consistency Model: proxies"
WGMMA = "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async"
REGISTERS = "Miscellaneous Instructions: setmaxnreg"
TCGEN05 = "TensorCore 5th Generation Family Instructions: memory consistency and tensor memory"
