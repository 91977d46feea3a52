"""Triton's concurrency sanitizer (ConSan) and `tilesim check` on the same GEMM, right and wrong.

``python -m benchmarks.consan`` needs Triton 3.6, torch and a Hopper GPU. The kernel exists twice:
in Gluon (`benchmarks.gluon_gemm`) and here, with the protocol that Triton makes of it: two
consumers of four warps, a producer, four stages, one arrival per consumer and release, the result
stored twice through the same shared memory. The Gluon kernel's producer has one warp, which Triton
fills up to a warpgroup with partitions that do nothing, or ``--producer-warps 4``; both loads of a
stage complete on one barrier, or on ``--full-barriers 2``. ConSan's answers depend on both.

The first table has the cost on the right kernel: wall seconds of the first launch with compilation
and of a launch (the median of up to 30), without and with ConSan, and of a check on the same CPU.
The second has what is said of the kernel with one fault. Every launch there is a process of its
own; one that has not ended after ``LIMIT`` seconds hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.consan_process import LIMIT, Printed, printed_by
from tilesim.arith.types import bf16, f32
from tilesim.checker import Report, check
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import Fragment, SharedTensor
from tilesim.kernels.hopper.operands import multiply_tile
from tilesim.lib.pipeline import Pipeline

M, N, K, ROWS, STAGES, WARPS = 128, 128, 64, 64, 4, 4
SIZES = ((16, 1), (64, 1), (256, 1), (16, 16), (64, 16))

#: what is changed in the kernel, by the name that both versions know it by
FAULTS: Mapping[str, str] = {
    "full-wait": "the consumers do not wait for a stage to be full",
    "full-parity": "they wait for the other parity",
    "stage": "they multiply the stage after the one they waited for",
    "wgmma-wait": "they release a stage without waiting for its wgmma",
    "early-release": "they release the stage whose wgmma is still in flight",
    "release": "one consumer never releases",
    "empty-wait": "the producer does not wait for a stage to be empty",
    "empty-parity": "it waits for the other parity",
    "empty-count": "a stage counts as empty after one of two consumers released it",
    "bytes-many": "twice the bytes are expected",
    "bytes-few": "half the bytes are expected",
    "proxy-fence": "no `fence.proxy.async` before the result is stored",
    "store-wait": "the result is overwritten before its store has read it",
    "exit-wait": "the CTA ends before its last store has read the result",
}
#: a change that is not a fault: nothing uses the memory of the barriers afterwards
HARMLESS: Mapping[str, str] = {
    "none": "(the right kernel)",
    "no-invalidate": "the barriers are not invalidated at the end",
}


@kernel(warps=WARPS * 3)
def matmul(
    k: Builder, *, stages: int = STAGES, iterations: int = 16, ctas: int = 1, fault: str = "none"
) -> None:
    """C (128 ctas, 256) bf16: twice A @ B.T side by side, K = 64 iterations; 128 rows per CTA."""
    k.launch(grid=ctas, registers=168)
    A = k.tensor("A", bf16, (M * ctas, K * iterations))
    B = k.tensor("B", bf16, (N, K * iterations))
    C = k.tensor("C", bf16, (M * ctas, 2 * N))
    a_map = k.tensor_map(A, (M, K), swizzle=128)
    b_map = k.tensor_map(B, (N, K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, N))
    sA = k.shared("sA", bf16, (stages, M, K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, N, K), swizzle=128)
    sC = k.shared("sC", bf16, (2, ROWS, N))
    pipe = Pipeline(k, stages, consumers=1 if fault == "empty-count" else 2)
    acc = k.fragment("acc", f32, (ROWS, N), "warpgroup")
    result = k.fragment("result", bf16, (ROWS, N), "warpgroup")

    with k.one_thread():
        pipe.init()
        k.fence.mbarrier_init()
    k.sync_threads()

    for group in range(2):
        first = WARPS * group
        with k.role(f"consumer{group}", range(first, first + WARPS)):
            k.setmaxnreg("inc", 232)
            _accumulate(k, pipe, acc, sA, sB, group, iterations, fault)
            k.tile.cast(result, acc)
            for half in range(2):
                k.tile.store(sC[group], result)
                if fault != "proxy-fence":
                    k.fence.proxy_async("shared::cta")
                _join(k, group)
                with k.one_thread(first):
                    k.tma.store(c_map, sC[group], (k.cta_x * M + group * ROWS, half * N))
                    k.bulk.commit_group()
                    if fault != ("exit-wait" if half else "store-wait"):
                        k.bulk.wait_group(0, read=True)
                _join(k, group)

    with k.role("producer", range(2 * WARPS, 3 * WARPS)):
        k.setmaxnreg("dec", 40)
        with k.one_thread(2 * WARPS), k.loop(iterations, name="kt") as kt:
            slot = pipe[kt]
            if fault == "empty-parity":
                k.mbarrier.wait(slot.empty, slot.parity)
            elif fault != "empty-wait":
                slot.acquire()
            needed = a_map.box_bytes + b_map.box_bytes
            slot.commit({"bytes-many": 2 * needed, "bytes-few": needed // 2}.get(fault, needed))
            k.tma.load(a_map, sA[slot.stage], (k.cta_x * M, kt * K), slot.full)
            k.tma.load(b_map, sB[slot.stage], (0, kt * K), slot.full)

    k.sync_threads()
    if fault != "no-invalidate":
        with k.one_thread():
            pipe.invalidate()


def _join(k: Builder, group: int) -> None:
    """Collects the four warps of a consumer."""
    k.bar.sync(1 + group, 32 * WARPS, aligned=False)


def _accumulate(
    k: Builder,
    pipe: Pipeline,
    acc: Fragment,
    sA: SharedTensor,
    sB: SharedTensor,
    group: int,
    iterations: int,
    fault: str,
) -> None:
    """A consumer's loop over its 64 rows of every A tile, with one wgmma group in flight."""

    def issue(item: Any) -> None:
        slot = pipe[item]
        if fault == "full-parity":
            k.mbarrier.wait(slot.full, slot.parity ^ 1)
        elif fault != "full-wait":
            slot.wait()
        stage = pipe[item + 1].stage if fault == "stage" else slot.stage
        multiply_tile(k, acc, sA[stage, ROWS * group : ROWS * (group + 1)], sB[stage])

    def release(item: Any) -> None:
        if fault != "release" or group == 0:
            _join(k, group)
            with k.one_thread(WARPS * group):
                pipe[item].release()

    early = fault == "early-release"
    k.tile.fill(acc, 0.0)
    issue(0)
    if early:
        release(0)
    with k.loop(1, iterations, name="kt") as kt:
        issue(kt)
        if fault != "wgmma-wait":
            k.wgmma.wait_group(1)
        release(kt if early else kt - 1)
    k.wgmma.wait_group(0)
    if not early:
        release(iterations - 1)


# ------------------------------------------------------------------ the two tools


@dataclass(frozen=True)
class Opinion:
    """What came of one launch: a message of ConSan's or how the launch ended, and its seconds.

    ``printed`` is the start of what the process printed.
    """

    said: str
    compilation: float
    launch: float
    printed: str


@dataclass(frozen=True)
class Setting:
    """Where compiled kernels are kept; the Gluon kernel's producer warps and barriers per stage."""

    cache: str
    producer: int
    fulls: int


def gluon(setting: Setting, consan: bool, *arguments: str) -> Printed:
    """What one process of `benchmarks.gluon_gemm` prints."""
    command = ("benchmarks.gluon_gemm", *arguments, "--producer-warps", str(setting.producer))
    command += ("--full-barriers", str(setting.fulls))
    return printed_by(*command, consan=consan, cache=setting.cache)


def opinion(setting: Setting, consan: bool, fault: str) -> Opinion:
    """Launches the Gluon kernel with one fault, once."""
    printed = gluon(setting, consan, "--fault", fault, "--limit", str(LIMIT))
    if not printed.answers:
        return Opinion("no answer", 0.0, 0.0, printed.rest[-1000:])
    answer = printed.answers[-1]
    said = printed.found or answer["status"]
    if said == "stopped":
        said = f"stopped: {answer['error']}"
    return Opinion(said, answer["compile"], answer["launch"], printed.rest[:1000])


def verdict(report: Report) -> str:
    """A report in a table cell."""
    rules = ", ".join(sorted(report.rules))
    return f"{report.verdict} ({rules})" if rules else report.verdict


def checked(fault: str, iterations: int = 16, ctas: int = 1) -> tuple[Report, float]:
    """The report of `check`, and the median wall seconds of three checks."""
    program = matmul.build(fault=fault, iterations=iterations, ctas=ctas)
    seconds = []
    for _ in range(3):
        start = perf_counter()
        report = check(program)
        seconds.append(perf_counter() - start)
    return report, median(seconds)


def measure_cost(setting: Setting) -> dict[str, Any]:
    """Prints the first table."""
    arguments = ("--sizes", json.dumps(SIZES), "--limit", "5")
    bare = gluon(setting, False, *arguments)
    if not bare.answers:
        raise SystemExit(bare.rest)
    sanitized = gluon(setting, True, *arguments)
    plain, consan = bare.answers, sanitized.answers
    versions = plain[0]
    print(f"{date.today()}: {versions['device']}", end=", ")
    print(f"triton {versions['triton']}, torch {versions['torch']}")
    if len(consan) < len(SIZES):
        print(f"the right kernel under ConSan: {sanitized.rest[-2000:]}")
    if consan:
        print(f"first launch: {plain[0]['first']:.2f} s, with ConSan {consan[0]['first']:.2f} s")
    print("| iterations | CTAs | launch, ms | with ConSan, ms | ratio | check, ms | verdict |")
    print("| --- " * 7 + "|")
    for without, with_ in zip(plain, consan, strict=False):
        report, seconds = checked("none", without["iterations"], without["ctas"])
        right = "" if without["right"] and with_["right"] else ", WRONG PRODUCT"
        print(
            f"| {without['iterations']} | {without['ctas']} "
            f"| {without['launch'] * 1e3:.3f} | {with_['launch'] * 1e3:.2f} "
            f"| {with_['launch'] / without['launch']:.0f} "
            f"| {seconds * 1e3:.0f} | {verdict(report)}{right} |",
            flush=True,
        )
        without["check"] = seconds
    return {"plain": plain, "consan": consan}


def measure_faults(setting: Setting, jobs: int) -> list[dict[str, Any]]:
    """Prints the second table."""
    print("\n| fault | tilesim | ms | launch without ConSan | with ConSan | compilation, s | s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    names = (*HARMLESS, *FAULTS)
    ours = {name: checked(name) for name in names}
    rows = []
    with ThreadPoolExecutor(jobs) as pool:
        sanitized = [pool.submit(opinion, setting, True, name) for name in names]
        bare = [pool.submit(opinion, setting, False, name) for name in names]
        for name, with_, without in zip(names, sanitized, bare, strict=True):
            report, seconds = ours[name]
            theirs, plain = with_.result(), without.result()
            print(
                f"| {name} | {verdict(report)} | {seconds * 1e3:.0f} | {plain.said} "
                f"| {theirs.said} | {theirs.compilation:.0f} | {theirs.launch:.2f} |",
                flush=True,
            )
            rows.append({"fault": name, "tilesim": verdict(report), "seconds": seconds,
                         "plain": vars(plain), "consan": vars(theirs),
                         "findings": [f.message for f in report.findings]})  # fmt: skip
    return rows


def main() -> None:
    """Prints both tables as they are made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--json", type=Path, help="a file for everything measured")
    parser.add_argument("--producer-warps", type=int, default=1, choices=(1, 2, 4))
    parser.add_argument("--full-barriers", type=int, default=1, choices=(1, 2))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        setting = Setting(cache, arguments.producer_warps, arguments.full_barriers)
        results = {"cost": measure_cost(setting), "faults": measure_faults(setting, arguments.jobs)}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
