"""What the attention kernels of all architectures compute: constants, inputs, reference."""

from __future__ import annotations

from math import e, log2
from typing import Any

import numpy as np

from tilesim.ir.types import bf16, numpy_dtype
from tilesim.kernels.hopper.operands import Arrays

#: head dimension
DEPTH = 64
#: the exponentials are powers of two
SCALE = log2(e) / DEPTH**0.5
#: below every score, and finite: its difference to a score is no NaN
LOWEST = -1.0e30


def attention_inputs(
    rng: np.random.Generator, *, queries: int, keys: int, heads: int, **_: Any
) -> Arrays:
    """Q, K and V of standard normal values."""
    kind = numpy_dtype(bf16)
    shapes = {"Q": (heads * queries, DEPTH), "K": (heads * keys, DEPTH), "V": (heads * keys, DEPTH)}
    return {name: rng.standard_normal(shape).astype(kind) for name, shape in shapes.items()}


def attention_weights(inputs: Arrays, heads: int) -> Arrays:
    """softmax(Q @ K.T / sqrt(DEPTH)) per head, and V, both (heads, ...) in f64."""
    q, keys, v = (inputs[n].astype(np.float64).reshape(heads, -1, DEPTH) for n in ("Q", "K", "V"))
    scores = q @ keys.transpose(0, 2, 1) / np.sqrt(DEPTH)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return {"W": weights / weights.sum(axis=2, keepdims=True), "V": v}


def attention_reference(inputs: Arrays, *, heads: int = 2, **_: Any) -> Arrays:
    """O = softmax(Q @ K.T / sqrt(DEPTH)) @ V per head, in f64 and rounded once.

    The kernel rounds P and O to bf16 and nothing else: its result differs from the exact one by at
    most 2^-7 of the same sum over \\|V\\|, up to f32 rounding.
    """
    exact = attention_weights(inputs, heads)
    return {"O": (exact["W"] @ exact["V"]).reshape(-1, DEPTH).astype(numpy_dtype(bf16))}
