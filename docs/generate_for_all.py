"""Writes what is proved of the gallery into ``docs/soundness/parameters.md``:
``python -m docs.generate_for_all``; ``--measure`` proves as well.

Each pipeline of the gallery is proved for every value of a parameter. What was found is kept in
``docs/for_all.json``, as all proofs together take minutes: ``--measure`` makes them all again, or
those whose names have one of the words behind it in them. Tests compare the page with this output,
and the quick proofs with what is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tilesim as ts
from docs.regions import replaced
from tilesim.fuzz.cases import kernel_of

PAGE = Path(__file__).parent / "soundness" / "parameters.md"
FOUND = Path(__file__).parent / "for_all.json"


@dataclass(frozen=True)
class Row:
    """A kernel with ``params``, for ``values`` of the parameter ``name``; ``quick``: in seconds.

    ``given``: contents of tensors that control flow depends on.
    """

    module: str
    name: str
    values: str
    params: Mapping[str, Any] = field(default_factory=dict)
    kernel: str = "matmul"
    quick: bool = False
    given: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Names the row."""
        given = ",".join(f"{n}={v}" for n, v in self.params.items())
        return f"{self.module}::{self.kernel}[{given}] {self.name}={self.values}"

    def prove(self) -> dict[str, Any]:
        """What is found: ``last``, the last value, or ``obstacle``."""
        target = f"tilesim.kernels.{self.module}::{self.kernel}"
        inputs = {name: np.array(values, np.int32) for name, values in self.given.items()}
        report = ts.check(
            kernel_of(target), for_all={self.name: self.values}, params=self.params, inputs=inputs
        )
        claim = report.for_all
        if claim is None or not claim.proved:
            return {"obstacle": str(None if claim is None else claim.obstacle)}
        return {"last": None if claim.limit is None else claim.limit[0]}


_ONE = {"stages": 2, "ctas": 1}
_DEPTH = "64..:64"
ROWS: tuple[Row, ...] = (
    Row("hopper.matmul_v2", "depth", _DEPTH, {"m": 64, "n": 64, "stages": 2}),
    Row("hopper.matmul_v3", "depth", _DEPTH, {"m": 64, "n": 64, "stages": 2}),
    Row("hopper.matmul_v4", "depth", _DEPTH, {"m": 64, "n": 64, "stages": 2}),
    Row("hopper.matmul_v5", "iterations", "1..", _ONE),
    Row("hopper.matmul_v6", "depth", _DEPTH, {**_ONE, "m": 256, "n": 64}),
    Row("hopper.matmul_v6", "m", "128..:128", {**_ONE, "n": 64, "depth": 64}),
    Row("hopper.matmul_v7", "depth", _DEPTH, {**_ONE, "m": 256, "n": 128, "pieces": 1}),
    Row("hopper.matmul_v7", "m", "128..:128", {**_ONE, "band": 1, "n": 128, "depth": 64}),
    Row("hopper.matmul_v8", "depth", _DEPTH, {"m": 256, "n": 128, "band": 1, "pieces": 1}),
    Row("hopper.matmul_v8", "m", "256..:256", {"n": 128, "band": 1, "depth": 64}),
    Row("hopper.matmul_fp8", "depth", "128..:128", {**_ONE, "m": 256, "n": 128, "pieces": 1}),
    Row("hopper.matmul_fp8", "m", "128..:128", {**_ONE, "band": 1, "n": 128, "depth": 128}),
    Row("hopper.matmul_fp8_blocks", "depth", "128..:128", {**_ONE, "m": 256, "n": 128}),
    Row(
        "hopper.matmul_fp8_blocks", "m", "128..:128",
        {**_ONE, "band": 1, "n": 128, "depth": 128},
    ),
    Row(
        "hopper.matmul_grouped", "depth", _DEPTH,
        {**_ONE, "sizes": (128, 60), "n": 128, "pieces": 1}, given={"ends": (128, 188)},
    ),
    Row("hopper.copy", "n", "256..:256", {"ctas": 1}, "vector", quick=True),
    Row("hopper.attention", "keys", _DEPTH, {"queries": 128, "heads": 1, "stages": 2}, "attention"),
    Row(
        "hopper.attention_v1", "keys", "128..:128", {"heads": 1, "ctas": 1, "queries": 128},
        "attention",
    ),
    Row(
        "hopper.attention_v1", "heads", "1..", {"ctas": 1, "queries": 128, "keys": 128},
        "attention",
    ),
    Row(
        "hopper.attention_v1", "keys", "24..:80",
        {"depth": 256, "block": 80, "in_place": True, "heads": 2, "grouped": 2, "ctas": 1,
         "queries": 128},
        "attention",
    ),
    Row(
        "hopper.attention_v2", "key_end0", "200..16000000:128",
        {"sequences": 1, "queries": 100, "keys": 1 << 24, "heads": 1, "ctas": 1}, "attention",
    ),
    Row("nvfuser.multi_role", "rows", "1..", {}, "multi_role"),
    Row("nvfuser.chained", "count", "4..:4", {}, "chained"),
    Row("nvfuser.synchronous_producer", "rows", _DEPTH, {}, "scale"),
    Row("nvfuser.synchronous_producer", "depth", _DEPTH, {}, "dequantise"),
    Row("cluster.split_k", "iterations", "1..", {"splits": 2, "tiles": 1}, "split_k", quick=True),
    Row("cluster.matmul", "iterations", "1..", {"rows": 1, "stages": 2}),
    Row("blackwell.matmul_v0", "depth", _DEPTH, {"m": 128, "n": 64}),
    Row("blackwell.matmul_v1", "depth", _DEPTH, {"m": 128, "n": 64}),
    Row("blackwell.matmul_v2", "depth", _DEPTH, {"m": 128, "n": 64, "stages": 2}),
    Row("blackwell.matmul_v3", "depth", _DEPTH, {"m": 128, "n": 64, "stages": 2}),
    Row("blackwell.matmul_v4", "depth", _DEPTH, {**_ONE, "m": 256, "n": 64}),
    Row("blackwell.matmul_v4", "n", _DEPTH, {**_ONE, "m": 128, "strip": 1, "depth": 64}),
    Row("blackwell.matmul_v5", "depth", _DEPTH, {"m": 128, "n": 128, "stages": 2}),
    Row("blackwell.matmul_v6", "depth", _DEPTH, {"m": 256, "n": 128, "stages": 2}),
    Row(
        "blackwell.attention", "keys", _DEPTH,
        {"queries": 256, "heads": 1, "block": 64, "stages": 2}, "attention",
    ),
)  # fmt: skip


def load() -> dict[str, dict[str, Any]]:
    """What was found, by row."""
    return dict(json.loads(FOUND.read_text())) if FOUND.exists() else {}


def measure(words: Sequence[str] = ()) -> None:
    """Makes the proofs, those of rows with one of these words, and keeps what is found."""
    found = load()
    kept = {row.key: found[row.key] for row in ROWS if row.key in found}
    for row in ROWS:
        if not words or any(word in row.key for word in words):
            kept[row.key] = row.prove()
            print(row.key, kept[row.key], flush=True)
            FOUND.write_text(json.dumps(kept, indent=1) + "\n")


def page(text: str) -> str:
    """The page with what was found."""
    return replaced(text, "gallery", _summary(load()))


def _summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    """How many rows are proved, and of which kernels for every value of which parameters."""
    proved = sum("last" in found[row.key] for row in ROWS)
    names: dict[str, dict[str, None]] = {}
    for row in ROWS:
        failed = f" (not: {found[row.key]['obstacle']})" if "obstacle" in found[row.key] else ""
        names.setdefault(row.module, {})[f"`{row.name}`{failed}"] = None
    listed = "; ".join(f"`{module}` {', '.join(of)}" for module, of in names.items())
    return f"{proved} of {len(ROWS)} are proved: {listed}.\n"


def main() -> None:
    """Writes the page."""
    if "--measure" in sys.argv:
        measure(sys.argv[sys.argv.index("--measure") + 1 :])
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
