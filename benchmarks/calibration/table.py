"""Predicted and measured times: ``python -m benchmarks.calibration.table MEASURED``.

Reads what `benchmarks.calibration.measure` wrote, predicts its rows, keeps both in ``h200.json``,
or with ``--unseen`` in ``h200-unseen.json``, and writes ``README.md`` beside them. Needs no GPU.
``--page`` writes the page from what is kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.calibration.measure import program_of
from tilesim.predict.predict import predict

KEPT = Path(__file__).parent / "h200.json"
#: the same of shapes with which the model was not made
UNSEEN = Path(__file__).parent / "h200-unseen.json"
PAGE = Path(__file__).parent / "README.md"
#: microseconds up to which rows are predicted: longer ones take minutes
MOST = 2400.0
#: rows by which the clock under load was fitted
FITTED = {2048, 4096}

Row = Mapping[str, Any]


def predicted(row: Row) -> dict[str, Any]:
    """A measured row with its prediction."""
    found = predict(program_of((row["kernel"], row["parameters"])), registers=row["registers"])
    return {
        "kernel": row["kernel"], "parameters": row["parameters"], "registers": row["registers"],
        "measured": round(row["us"], 2), "predicted": round(found.microseconds, 2),
        "duty": round(found.duty, 3), "megahertz": round(found.megahertz),
    }  # fmt: skip


def ratio(row: Row) -> float:
    """Predicted over measured."""
    return float(row["predicted"] / row["measured"])


def spearman(rows: Sequence[Row]) -> float:
    """Correlation of the ranks of predicted and measured times."""
    first, second = (
        np.argsort(np.argsort([row[key] for row in rows])) for key in ("predicted", "measured")
    )
    return float(np.corrcoef(first, second)[0, 1])


def _is_fitted(row: Row) -> bool:
    p = row["parameters"]
    return p.get("m") in FITTED and p["m"] == p["n"] == p["depth"]


def _figures(rows: Sequence[Row]) -> str:
    off = [abs(ratio(row) - 1) for row in rows]
    part = mean(x <= 0.15 for x in off)
    return (
        f"{len(rows)} | {100 * median(off):.1f} % | {100 * part:.0f} % | "
        f"{min(map(ratio, rows)):.2f} to {max(map(ratio, rows)):.2f} | {spearman(rows):.3f}"
    )


def page(kept: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """benchmarks/calibration/README.md; ``other``: of shapes with which the model was not made."""
    text = (Path(__file__).parent / "predicted-times.md").read_text()
    rows, facts = kept["rows"], kept["environment"]
    where = (
        f"{facts['gpu']}, CUDA driver API {facts['driver API']}, NVRTC {facts['nvrtc']}, "
        f"{facts['date']}"
    )
    fitted = [row for row in rows if _is_fitted(row)]
    others = [row for row in rows if not _is_fitted(row)]
    head = [
        "| rows | number | off by, in the median | within 15 % | predicted / measured | Spearman |",
        "|---|--:|--:|--:|---|--:|",
    ]
    summary = [
        f"| all | {_figures(rows)} |",
        f"| GEMMs of 2048^3 and 4096^3, by which the clock was fitted | {_figures(fitted)} |",
        f"| all others | {_figures(others)} |",
    ]
    unseen = [f"| all | {_figures(other['rows'])} |"]
    return (
        text.replace("@where@", where)
        .replace("@summary@", "\n".join([*head, *summary]))
        .replace("@unseen@", "\n".join([*head, *unseen]))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Predicts and writes."""
    parser = argparse.ArgumentParser(prog="benchmarks.calibration.table")
    parser.add_argument("measured", type=Path, nargs="?", help="what `measure` wrote")
    parser.add_argument("--unseen", action="store_true", help="shapes it was not made with")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args(arguments)
    if not options.page:
        if options.measured is None:
            parser.error("MEASURED is missing")
        found = json.loads(options.measured.read_text())
        with ProcessPoolExecutor() as pool:
            rows = list(pool.map(predicted, [r for r in found["rows"] if r["us"] <= MOST]))
        kept = {"environment": found["environment"], "rows": rows}
        lines = ",\n".join(json.dumps(row) for row in rows)
        (UNSEEN if options.unseen else KEPT).write_text(
            f'{{"environment": {json.dumps(kept["environment"])},\n"rows": [\n{lines}\n]}}\n'
        )
    PAGE.write_text(page(*(json.loads(path.read_text()) for path in (KEPT, UNSEEN))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
