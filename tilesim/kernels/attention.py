"""What the attention kernels of all architectures compute: constants, inputs, reference."""

from __future__ import annotations

from math import e, log2, sqrt
from typing import Any

import numpy as np

from tilesim.ir.types import bf16, numpy_dtype
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
    rng: np.random.Generator, *, queries: int, keys: int, heads: int, depth: int = DEPTH, **_: Any
) -> Arrays:
    """Q, K and V of standard normal values."""
    kind = numpy_dtype(bf16)
    shapes = {"Q": (heads * queries, depth), "K": (heads * keys, depth), "V": (heads * keys, depth)}
    return {name: rng.standard_normal(shape).astype(kind) for name, shape in shapes.items()}


def attention_weights(inputs: Arrays, heads: int, *, causal: bool = False) -> Arrays:
    """softmax(Q @ K.T / sqrt(head dimension)) per head, and V, both (heads, ...) in f64.

    ``causal``: query i sees keys 0 to i.
    """
    depth = inputs["Q"].shape[-1]
    q, keys, v = (inputs[n].astype(np.float64).reshape(heads, -1, depth) for n in ("Q", "K", "V"))
    scores = q @ keys.transpose(0, 2, 1) / np.sqrt(depth)
    if causal:
        scores = np.where(np.tri(*scores.shape[1:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return {"W": weights / weights.sum(axis=2, keepdims=True), "V": v}


def attention_reference(
    inputs: Arrays, *, heads: int = 2, causal: bool = False, **_: Any
) -> Arrays:
    """O = softmax(Q @ K.T / sqrt(head dimension)) @ V per head, in f64 and rounded once.

    The kernel rounds P and O to bf16 and nothing else: its result differs from the exact one by at
    most 2^-7 of the same sum over \\|V\\|, up to f32 rounding.
    """
    exact = attention_weights(inputs, heads, causal=causal)
    out = (exact["W"] @ exact["V"]).reshape(inputs["Q"].shape)
    return {"O": out.astype(numpy_dtype(bf16))}
