"""The sections of the litmus table; importing one adds its rows."""

from __future__ import annotations

from . import (
    addresses,
    answers,
    async_release,
    boxes,
    bulk,
    clc,
    clusters,
    cp_async,
    footprints,
    hints,
    mbarriers,
    memory_model,
    named_barriers,
    packed_maps,
    phases,
    registers,
    restricted,
    tcgen05,
    tensor_memory,
    tensor_products,
    tensormaps,
    vectors,
    warps,
    wgmma,
    wide,
)
from .table import ROWS, Row

SECTIONS = (
    addresses, answers, async_release, boxes, bulk, clc, clusters, cp_async, footprints, hints,
    mbarriers, memory_model, named_barriers, packed_maps, phases, registers, restricted, tcgen05,
    tensor_memory, tensor_products, tensormaps, vectors, warps, wgmma,
    wide,
)  # fmt: skip


def all_rows() -> tuple[Row, ...]:
    """Every row of every section."""
    return tuple(ROWS)
