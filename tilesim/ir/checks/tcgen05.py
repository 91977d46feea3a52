"""Tensor core instructions of the fifth generation: what one kernel may combine (SEMANTICS G)."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.errors import Diagnostic
from tilesim.ir.op import Op
from tilesim.ir.ops.tma import TmaLoad
from tilesim.ir.program import Program, instructions


def check_tcgen05(program: Program) -> Iterator[Diagnostic]:
    """One cta_group per kernel (G2), pairs in the cluster (G10), kinds the target has (G1)."""
    grouped = [op for op in instructions(program) if op.mnemonic.startswith("tcgen05")]
    grouped = [op for op in grouped if hasattr(op, "cta_group")]
    if grouped:
        yield from _groups(program, grouped)
    integer = next((op for op in grouped if getattr(op, "kind", "") == "i8"), None)
    scaled = next((op for op in grouped if getattr(op, "scale_input_d", 0)), None)
    features = program.target.features
    if scaled is not None and "tcgen05" in features and "tcgen05.scale_input_d" not in features:
        yield Diagnostic(
            "target", f"{program.target} has no scale-input-d of {scaled.mnemonic} (G1)",
            scaled.loc, "targets that have it: sm_100a, sm_100f, sm_103a",
        )  # fmt: skip
    if integer is not None and "tcgen05" in features and "tcgen05.i8" not in features:
        yield Diagnostic(
            "target", f"{program.target} has no {integer.mnemonic}.kind::i8 (G1)", integer.loc,
            "targets that have it: sm_100a, sm_110a",
        )  # fmt: skip


def check_paired_copies(program: Program) -> Iterator[Diagnostic]:
    """Tensor copies of a CTA pair exist where tcgen05 does (B26)."""
    paired = [op for op in instructions(program) if isinstance(op, TmaLoad) and op.cta_group == 2]
    if paired and "cta_group" not in program.target.features:
        yield Diagnostic(
            "target", f"{program.target} has no {paired[0].mnemonic}.cta_group::2 (B26)",
            paired[0].loc, "targets that have it are those with tcgen05",
        )  # fmt: skip


def _groups(program: Program, grouped: list[Op]) -> Iterator[Diagnostic]:
    first = grouped[0]
    group = getattr(first, "cta_group", 1)
    other = next((op for op in grouped if getattr(op, "cta_group", group) != group), None)
    if other is not None:
        yield Diagnostic(
            "operand",
            f"{other.mnemonic}.cta_group::{3 - group} in a kernel that has "
            f"{first.mnemonic}.cta_group::{group} at {first.loc} (G2)",
            other.loc,
            "use one cta_group in all tcgen05 instructions of a kernel",
        )
    paired = next((op for op in grouped if getattr(op, "cta_group", 1) == 2), None)
    if paired is not None and program.cluster_size % 2:
        yield Diagnostic(
            "launch",
            f"{paired.mnemonic}.cta_group::2 in clusters of {program.cluster_size} CTAs: a pair is "
            "two CTAs of a cluster whose ranks differ in bit 0 (G10)",
            paired.loc,
            "launch with an even number of CTAs per cluster",
        )
