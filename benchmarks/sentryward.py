"""Side by side: the verifier ``sentryward`` and tilesim on the same PTX and launches.

``python -m benchmarks.sentryward [FILE.ptx...]`` needs a command ``sentryward`` (PyPI;
``--command`` names one that is installed elsewhere). Without files, which have their launches
beside them as ``FILE.json``, the SM100 rows of the gallery are taken, for which it needs the
``compile`` extra. One row per kernel: verdict and seconds of both, and its first diagnostic.

``--faults N``: kernels that both accept, and N texts of each with one fault (`ptx_faults`); a row
per fault, and a line for each text on which the two differ. Neither tool sees all that the other
sees: a difference is something to look into. Seconds are those of the processor, which other load
does not stretch: tilesim's of reading, lowering and checking in one process, its of its command.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from benchmarks.ptx_faults import Spoiled, spoiled
from tilesim.checker import check
from tilesim.errors import TilesimError
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import EmitError
from tilesim.ir.program import Strict
from tilesim.kernels.registry import cases
from tilesim.ptx.bind import completed
from tilesim.ptx.demangle import short
from tilesim.ptx.description import loads
from tilesim.ptx.launch import Launch, Map, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Function, Unsupported

#: the names its configuration has for element types; the others travel as raw bits
_ELEMENTS = {"f16": "f16", "bf16": "bf16", "f32": "f32", "u32": "u32", "s32": "s32", "u8": "u8"}
_RAW = {8: "u8", 16: "u16", 32: "u32"}
_WIDTH = 100
#: verdicts that accept a kernel, and those that find something
_ACCEPT, _FIND = {"proved", "exhausted", "race_free"}, {
    "failed", "rejected", "potential_race", "not_wellsynced", "invalid_lifecycle",
}  # fmt: skip
#: findings that it reports as a failure of the tool or as unsupported
_FOUND = ("missing-barrier-initialization", "tmem_missing_dealloc")
#: kernels of the gallery that faults are put into: those that it decides in seconds
_SPOILED = (
    "tilesim.kernels.blackwell.matmul_v0::matmul[block_n=32,depth=64]",
    "tilesim.kernels.blackwell.matmul_v2::matmul[stages=2,depth=64]",
    "tilesim.kernels.blackwell.matmul_v3::matmul[stages=2,depth=64]",
    "tilesim.kernels.blackwell.matmul_v4::matmul[stages=2,ctas=1,m=256,n=64]",
    "tilesim.kernels.bugs.tensor_memory::released_between_reads[fixed=True]",
)


@dataclass(frozen=True)
class Kernel:
    """One entry of a PTX text with a launch."""

    name: str
    text: str
    launch: Launch
    strict: Strict = "practice"


@dataclass(frozen=True)
class Opinion:
    """What a tool says of one kernel, and the seconds of the processor that it took."""

    verdict: str
    detail: str
    seconds: float


# ---------------------------------------------------------------------- kernels


def from_gallery(only: str) -> Iterator[Kernel]:
    """The SM100 rows of the gallery that can be emitted and have ``only`` in their names."""
    for case in cases():
        if case.kernel.target != "sm_100a" or only not in case.target:
            continue
        try:
            source = emit(case.build())
        except (EmitError, TilesimError):
            continue
        name = case.target.removeprefix("tilesim.kernels.")
        yield Kernel(name, portable(compile_ptx(source)), describe(source), case.strict)


def from_file(path: Path) -> Kernel:
    """A PTX file with its launch."""
    launch = loads(path.with_suffix(".json").read_text(), path.name)
    return Kernel(path.stem, path.read_text(), launch)


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


# ---------------------------------------------------------------------- both tools


def _entry(kernel: Kernel) -> Function:
    module = read(kernel.text, "kernel.ptx")
    return next(entry for entry in module.entries if entry.name == kernel.launch.entry)


def configuration(kernel: Kernel) -> dict[str, Any]:
    """The launch in its input format."""
    entry = _entry(kernel)
    launch = completed(entry, kernel.launch)
    dimensions: dict[str, Any] = {
        "grid_dim": list(launch.grid), "block_dim": list(launch.block),
        "dynamic_shared_bytes": launch.dynamic_shared,
    }  # fmt: skip
    if launch.cluster != (1, 1, 1):
        dimensions["cluster_dim"] = list(launch.cluster)
    params = list(enumerate(zip(entry.params, launch.params, strict=True)))
    made: dict[str, Any] = {
        "schema": "spverify.kernel-input/v1", "launch": dimensions,
        "tma_descriptors": [_descriptor(p, i) for i, (_, p) in params if isinstance(p, Map)],
    }  # fmt: skip
    scalars = [
        {"parameter": i, "type": formal.type, "value": p.value}
        for i, (formal, p) in params
        if isinstance(p, Scalar) and p.value is not None
    ]
    if scalars:
        made["arguments"] = scalars
    return made


def _descriptor(value: Map, parameter: int) -> dict[str, Any]:
    """A tensor map."""
    return {
        "parameter": parameter,
        "object": value.name,
        "element_type": _ELEMENTS.get(value.type, _RAW.get(value.bits, "u8")),
        "global_shape": list(value.shape),
        "global_strides_bytes": list(value.strides),
        "box_shape": list(value.box),
        "element_strides": list(value.steps),
        "swizzle": "none" if value.swizzle == 0 else f"{value.swizzle}B",
        "interleave": "none",
        "oob_fill": value.fill,
    }


def ours(kernel: Kernel, seconds: int) -> Opinion:
    """tilesim's verdict."""
    start = process_time()
    try:
        module = read(kernel.text, "kernel.ptx")
        entry = next(e for e in module.entries if e.name == kernel.launch.entry)
        program = lower(module, entry, kernel.launch)
        report = check(program, strict=kernel.strict, time_limit=timedelta(seconds=seconds))
    except Unsupported as error:
        return Opinion("unsupported", error.what, process_time() - start)
    except TilesimError as error:
        return Opinion("rejected", str(error).splitlines()[0], process_time() - start)
    return Opinion(report.verdict, ", ".join(sorted(report.rules)), process_time() - start)


def _of_children() -> float:
    """Seconds of the processor that ended children have taken."""
    times = os.times()
    return times.children_user + times.children_system


def theirs(kernel: Kernel, command: str, seconds: int) -> Opinion:
    """Its result for the same text."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, config = Path(folder, "kernel.ptx"), Path(folder, "input.json")
        ptx.write_text(kernel.text)
        config.write_text(json.dumps(configuration(kernel)))
        start = _of_children()
        done = subprocess.run(
            [command, str(ptx), "--input", str(config), "--timeout", str(seconds)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        took = _of_children() - start
    result = json.loads(done.stdout)
    messages = [f"{d['code']}: {d.get('message', '')}" for d in result["diagnostics"]]
    detail = messages[0] if messages else ""
    found = "invalid_lifecycle" if detail.startswith(_FOUND) else result["result"]
    return Opinion(found, detail, took)


# ---------------------------------------------------------------------- tables


@dataclass
class Row:
    """Of one fault: texts, those that tilesim and the other one find and accept."""

    made: int = 0
    found: int = 0
    theirs_found: int = 0
    accepted: int = 0
    theirs_accepted: int = 0


@dataclass
class Table:
    """What faults came to."""

    rows: dict[str, Row] = field(default_factory=dict)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    def add(self, fault: str, mine: Opinion, other: Opinion) -> None:
        """One text."""
        row = self.rows.setdefault(fault, Row())
        row.made += 1
        row.found += mine.verdict in _FIND
        row.theirs_found += other.verdict in _FIND
        row.accepted += mine.verdict in _ACCEPT
        row.theirs_accepted += other.verdict in _ACCEPT
        self.seconds.append((mine.seconds, other.seconds))

    def __str__(self) -> str:
        head = (
            "| fault | texts | tilesim finds | accepts | sentryward finds | accepts |\n"
            "|---|---:|---:|---:|---:|---:|"
        )
        total = Counter[str]()
        lines = []
        for fault, row in sorted(self.rows.items()):
            total.update(vars(row))
            lines.append(_counts(fault, vars(row)))
        mine, other = (median(column) for column in zip(*self.seconds, strict=True))
        times = f"Median seconds of a text: tilesim {mine:.2f}, sentryward {other:.2f}"
        return "\n".join((head, *lines, _counts("**all**", total), "", times))


def _counts(name: str, row: dict[str, int] | Counter[str]) -> str:
    columns = ("made", "found", "accepted", "theirs_found", "theirs_accepted")
    return " | ".join((f"| {name}", *(str(row[c]) for c in columns))) + " |"


def compare(kernel: Kernel, command: str, seconds: int) -> tuple[Opinion, Opinion]:
    """Prints the row of a kernel."""
    mine, other = ours(kernel, seconds), theirs(kernel, command, seconds)
    verdict = f"{mine.verdict} ({mine.detail})" if mine.detail else mine.verdict
    print(
        f"| {short(kernel.name)} | {verdict} | {mine.seconds:.2f} | {other.verdict} | "
        f"{other.seconds:.2f} | {other.detail[:_WIDTH]} |",
        flush=True,
    )
    return mine, other


def spread(texts: Sequence[Spoiled], count: int) -> list[Spoiled]:
    """So many of them, of every fault in turn."""
    waiting: dict[str, list[Spoiled]] = {}
    for one in texts:
        waiting.setdefault(one.fault, []).append(one)
    chosen: list[Spoiled] = []
    turn = 0
    while len(chosen) < min(count, len(texts)):
        for same in waiting.values():
            if turn < len(same) and len(chosen) < count:
                chosen.append(same[turn])
        turn += 1
    return chosen


def with_faults(kernel: Kernel, count: int, command: str, seconds: int, table: Table) -> None:
    """Adds a kernel's faults to the table; prints those on which the two differ."""
    for one in spread(list(spoiled(kernel.text)), count):
        wrong = Kernel(kernel.name, one.text, kernel.launch, kernel.strict)
        mine, other = ours(wrong, seconds), theirs(wrong, command, seconds)
        table.add(one.fault, mine, other)
        if (mine.verdict in _FIND) != (other.verdict in _FIND):
            print(
                f"* {kernel.name}: {one}: tilesim {mine.verdict} ({mine.detail}), sentryward "
                f"{other.verdict} ({other.detail[:_WIDTH]})",
                flush=True,
            )


def main() -> None:
    """Prints the tables as they are made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="PTX files with launches")
    parser.add_argument("--command", default="sentryward", help="the verifier's executable")
    parser.add_argument(
        "--timeout", type=int, default=60, help="seconds of the clock per kernel (default 60)"
    )
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--faults", type=int, default=0, help="texts with a fault per kernel")
    given = parser.parse_args()
    kernels: Iterator[Kernel] = from_gallery(given.only)
    if given.files:
        kernels = (from_file(path) for path in given.files)
    elif given.faults:
        chosen = [name for name in _SPOILED if given.only in name]
        kernels = (k for name in chosen for k in from_gallery(name) if name.endswith(k.name))
    print("| kernel | tilesim | s | sentryward | s | its first diagnostic |")
    print("| --- | --- | --- | --- | --- | --- |")
    right = []
    for kernel in kernels:
        opinions = compare(kernel, given.command, given.timeout)
        if all(opinion.verdict in _ACCEPT for opinion in opinions):
            right.append(kernel)
    if given.faults and right:
        table = Table()
        print()
        for kernel in right:
            with_faults(kernel, given.faults, given.command, given.timeout, table)
        print("", table, sep="\n")


if __name__ == "__main__":
    main()
