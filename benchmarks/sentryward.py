"""A second opinion on emitted PTX: the gallery's SM100 rows through the verifier ``sentryward``.

``python -m benchmarks.sentryward`` needs the ``compile`` extra and a command ``sentryward`` (PyPI);
``--command`` names one that is installed elsewhere. Prints one row per kernel: our verdict and
time, its result, its first diagnostic and its time. Neither tool sees all that the other sees, so a
difference is something to look into, not an error.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.source import Source
from tilesim.gpu.errors import EmitError
from tilesim.ir.memory import TensorMap
from tilesim.kernels.registry import Case, cases

#: the names its configuration has for element types; the others travel as raw bits
_ELEMENTS = {"f16": "f16", "bf16": "bf16", "f32": "f32", "u32": "u32", "s32": "s32", "u8": "u8"}
_RAW = {8: "u8", 16: "u16", 32: "u32"}
_WIDTH = 100


@dataclass(frozen=True)
class Opinion:
    """What a tool says of one kernel, and the seconds it took."""

    verdict: str
    detail: str
    seconds: float


def configuration(source: Source) -> dict[str, Any]:
    """The launch configuration of an emitted kernel, in its input format."""
    program = source.program
    launch: dict[str, Any] = {
        "grid_dim": list(source.grid),
        "block_dim": [source.block, 1, 1],
        "dynamic_shared_bytes": source.smem_bytes,
    }
    if program.cluster != (1, 1, 1):
        launch["cluster_dim"] = list(program.cluster)
    maps = {m.name: m for m in program.maps}
    descriptors = [
        _descriptor(maps[param.name], index)
        for index, param in enumerate(source.params)
        if param.kind == "map"
    ]
    return {
        "schema": "spverify.kernel-input/v1", "launch": launch, "tma_descriptors": descriptors,
    }  # fmt: skip


def _descriptor(tensor_map: TensorMap, parameter: int) -> dict[str, Any]:
    """A tensor map, fastest dimension first; it wants the outer strides only."""
    tensor = tensor_map.tensor
    bits = tensor.dtype.bits
    strides = list(reversed(tensor.byte_strides))[1:]
    steps = tensor_map.element_strides or (1,) * len(tensor_map.box)
    swizzle = "none" if tensor_map.swizzle == 0 else f"{tensor_map.swizzle}B"
    return {
        "parameter": parameter,
        "object": tensor.name,
        "element_type": _ELEMENTS.get(tensor.dtype.name, _RAW.get(bits, "u8")),
        "global_shape": list(reversed(tensor.shape)),
        "global_strides_bytes": strides,
        "box_shape": list(reversed(tensor_map.box)),
        "element_strides": list(reversed(steps)),
        "swizzle": swizzle,
        "interleave": "none",
        "oob_fill": tensor_map.fill,
    }


_NOISE = re.compile(r"\s*(\.loc\b|//|$)")
_SCOPE = "{", ".reg .pred p;"


def portable(ptx: str) -> str:
    """The same PTX in forms that version 0.1.1 reads.

    It takes predicates of one name in sibling scopes for one predicate, so each gets a name of its
    own; and it knows a wait as a ``try_wait`` whose predicate the next branch tests directly.
    """
    lines = [line.strip() for line in ptx.splitlines() if not _NOISE.match(line)]
    out: list[str] = []
    at = 0
    while at < len(lines):
        if tuple(lines[at : at + 2]) != _SCOPE:
            out.append(lines[at])
            at += 1
            continue
        end = lines.index("}", at)
        name = f"p{len(out)}_"
        body = [re.sub(r"\bp\b", name, line) for line in lines[at + 1 : end]]
        if "try_wait" in body[1] and lines[end + 1].startswith("setp.eq"):
            body = [body[0], f"W{name}:", body[1], f"@!{name} bra W{name};"]
            end += 2
        out += body
        at = end + 1
    return "\n".join(out) + "\n"


def ours(case: Case) -> Opinion:
    """tilesim's verdict at the strictness of the case."""
    start = perf_counter()
    try:
        report = check(case.build(), strict=case.strict)
    except InvalidProgram as error:
        return Opinion("rejected", error.diagnostics[0].rule, perf_counter() - start)
    rules = sorted({finding.rule for finding in report.findings})
    return Opinion(report.verdict, ", ".join(rules), perf_counter() - start)


def theirs(source: Source, command: str, timeout: int) -> Opinion:
    """Its result for the PTX of ``source``."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, config = Path(folder, "kernel.ptx"), Path(folder, "input.json")
        ptx.write_text(portable(compile_ptx(source)))
        config.write_text(json.dumps(configuration(source)))
        start = perf_counter()
        done = subprocess.run(
            [command, str(ptx), "--input", str(config), "--timeout", str(timeout)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = perf_counter() - start
    result = json.loads(done.stdout)
    messages = [f"{d['code']}: {d.get('message', '')}" for d in result["diagnostics"]]
    return Opinion(result["result"], messages[0] if messages else "", seconds)


def rows(command: str, timeout: int, only: str) -> Iterator[tuple[Case, Opinion, Opinion]]:
    """Every SM100 row of the gallery that can be emitted and has ``only`` in its name."""
    for case in cases():
        if case.kernel.target != "sm_100a" or only not in case.target:
            continue
        opinion = ours(case)
        if opinion.verdict == "rejected":
            continue
        try:
            source = emit(case.build())
        except EmitError:
            continue
        yield case, opinion, theirs(source, command, timeout)


def main() -> None:
    """Prints the table as it is made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", default="sentryward", help="the verifier's executable")
    parser.add_argument("--timeout", type=int, default=60, help="seconds per kernel (default 60)")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    arguments = parser.parse_args()
    print("| kernel | tilesim | s | sentryward | s | its first diagnostic |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case, mine, other in rows(arguments.command, arguments.timeout, arguments.only):
        verdict = f"{mine.verdict} ({mine.detail})" if mine.detail else mine.verdict
        print(
            f"| {case.target} | {verdict} | {mine.seconds:.2f} | {other.verdict} | "
            f"{other.seconds:.2f} | {other.detail[:_WIDTH]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
