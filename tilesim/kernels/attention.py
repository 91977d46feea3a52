"""What the attention kernels of all architectures compute: constants, inputs, reference."""

from __future__ import annotations

from math import e, log2, sqrt
from typing import Any

import numpy as np

from tilesim.arith.types import bf16, numpy_dtype
from tilesim.kernels.hopper.operands import Arrays

#: head dimension
DEPTH = 64
#: below every score, and finite: its difference to a score is no NaN
LOWEST = -1.0e30


def scale(depth: int) -> float:
    """What scores are multiplied with: the exponentials are powers of two."""
    return log2(e) / sqrt(depth)


#: the same for `DEPTH`
SCALE = scale(DEPTH)


def attention_inputs(
    rng: np.random.Generator,
    *,
    queries: int,
    keys: int,
    heads: int,
    depth: int = DEPTH,
    grouped: int = 1,
    **_: Any,
) -> Arrays:
    """Q, K and V of standard normal values; ``grouped`` heads of Q share one of K and V."""
    kind = numpy_dtype(bf16)
    rows = {"Q": heads * queries, "K": heads // grouped * keys, "V": heads // grouped * keys}
    shapes = {name: (count, depth) for name, count in rows.items()}
    return {name: rng.standard_normal(shape).astype(kind) for name, shape in shapes.items()}


def attention_weights(
    inputs: Arrays, heads: int, *, causal: bool = False, grouped: int = 1
) -> Arrays:
    """softmax(Q @ K.T / sqrt(head dimension)) per head, and V, both (heads, ...) in f64.

    ``causal``: the last query sees all keys, the one before it all but one, and so on.
    ``grouped``: heads that share keys and values.
    """
    depth = inputs["Q"].shape[-1]
    q = inputs["Q"].astype(np.float64).reshape(heads, -1, depth)
    keys, v = (
        inputs[n].astype(np.float64).reshape(heads // grouped, -1, depth).repeat(grouped, axis=0)
        for n in ("K", "V")
    )
    scores = q @ keys.transpose(0, 2, 1) / np.sqrt(depth)
    if causal:
        queries, seen = scores.shape[1:]
        scores = np.where(np.tri(queries, seen, seen - queries) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return {"W": weights / weights.sum(axis=2, keepdims=True), "V": v}


def attention_reference(
    inputs: Arrays, *, heads: int = 2, causal: bool = False, grouped: int = 1, **_: Any
) -> Arrays:
    """O = softmax(Q @ K.T / sqrt(head dimension)) @ V per head, in f64 and rounded once.

    The kernel rounds P and O to bf16 and nothing else: its result differs from the exact one by at
    most 2^-7 of the same sum over \\|V\\|, up to f32 rounding.
    """
    exact = attention_weights(inputs, heads, causal=causal, grouped=grouped)
    out = (exact["W"] @ exact["V"]).reshape(inputs["Q"].shape)
    return {"O": out.astype(numpy_dtype(bf16))}
