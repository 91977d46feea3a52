"""The pictures in docs/images, which the README and the documentation show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import tilesim
from tilesim.checker import check
from tilesim.checker.witness import retrace
from tilesim.kernels.hopper import matmul_v5
from tilesim.loader import load
from tilesim.report.html import diagram, timeline, waitfor
from tilesim.sim.observers.timeline import record

ROOT = Path(tilesim.__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"


def pictures() -> Iterator[tuple[str, str]]:
    """Name and text of each picture."""
    with chdir(ROOT):
        gemm = matmul_v5.matmul.build()
        (target,) = load("examples/pipeline.py")
        program = target.build()
    (recorded,) = record(gemm).timelines
    shown = timeline.draw(recorded, title="Timeline of one CTA of a Hopper GEMM", whole=True)
    protocol = diagram.draw(gemm)
    assert shown is not None
    assert protocol is not None
    yield "gemm-timeline", shown.file()
    yield "gemm-barriers", protocol.file()
    report = check(program)
    assert report.witness is not None
    (failed,) = retrace(program, report.witness).timelines
    graph = waitfor.draw(failed.waiters)
    end = timeline.draw(failed, title="The end of a pipeline that deadlocks", whole=True)
    assert graph is not None
    assert end is not None
    yield "deadlock-graph", graph.file()
    yield "deadlock-timeline", end.file()
