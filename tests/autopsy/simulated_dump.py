"""`python -m tests.autopsy.simulated_dump`: autopsies of simulated dumps, and what of them is true.

Each statement about a warp, a barrier, its phase, its counts and what could release it is compared
with the two simulations that a dump is made from (`tests.autopsy.simulated_hang`). *Wrong* is what
they contradict; what an autopsy says not to know is *left open*. These dumps are simulated: they
show what an autopsy makes of a state, not which states hardware leaves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import click

from tests.autopsy.hanging_kernels import KERNELS
from tests.autopsy.sass_machine import Unsupported
from tests.autopsy.simulated_hang import ENDS, Hang, Kernel, Stand, compiled
from tests.cubin.compiled import kernels
from tests.kernels.faults import VARIANTS
from tilesim.autopsy.pipeline import Autopsy, autopsy
from tilesim.autopsy.wait_for import Entry
from tilesim.autopsy.waits import (
    ClusterBarrierWait,
    Group,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    RegisterPoolWait,
    Running,
    Sleep,
    Wait,
    WarpWait,
)
from tilesim.checker import check
from tilesim.cubin.image import Image
from tilesim.errors import TilesimError
from tilesim.findings.finding import Finding
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import emit
from tilesim.ir.program import Program
from tilesim.kernels.registry import cases
from tilesim.ptx.description import loads_all
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.records import dataclass

Inputs = Mapping[str, Any] | None


@dataclass(frozen=True)
class Score:
    """What an autopsy without PTX says of a dump: of how many stands of lanes, how many with the
    right wait, how many of these with all of it. ``wrong``: statements that are false. ``beyond``:
    warps that have what releases a wait ahead of them, as is said, but do not come to it: a branch
    on data, or on the thread, leads past it."""

    stands: int
    right: int
    whole: int
    wrong: tuple[str, ...]
    beyond: tuple[str, ...]


@dataclass(frozen=True)
class Caused:
    """What an autopsy with the PTX says: the kind of its match; whether the culprit is that of a
    check of the PTX with the launch as it was; ``why`` not."""

    kind: str
    culprit: bool
    why: str


# ------------------------------------------------------------------ statements


def said_of(found: Autopsy) -> list[tuple[Group, Entry]]:
    """All groups of an autopsy, with what is said of them."""
    return [(g, e) for launch in found.launches for e in launch.entries for g in e.groups]


def scored(hang: Hang, found: Autopsy, *, agrees: bool) -> Score:
    """Compares what is said without PTX. ``agrees``: the simulator's hang is the same one, so that
    it is known what could release each wait."""
    said = said_of(found)
    wrong: list[str] = []
    beyond: list[str] = []
    right = whole = 0
    for stand in hang.stands:
        cta, warp = stand.warp
        own = [
            (g, e) for g, e in said
            if g.cta.number == cta and warp in g.warps and g.lanes & stand.lanes
        ]  # fmt: skip
        covered = 0
        good, full = bool(own), bool(own)
        for group, entry in own:
            covered |= group.lanes
            verdict, why = judged(hang, stand, group.wait)
            good &= verdict in ("right", "open")
            full &= verdict == "right"
            if verdict == "wrong" and _has_just_passed(stand, entry):
                continue
            if verdict == "wrong":
                wrong.append(f"warp {warp} of CTA {cta}: {group.wait}, but {why}")
            wrong += _state(hang, stand, entry)
            if agrees and (suppliers := hang.suppliers(stand)) is not None:
                missed, more = _supplies(*suppliers, stand, entry)
                wrong += missed
                beyond += more
        if stand.lanes & ~covered:
            wrong.append(f"nothing is said of lanes {stand.lanes & ~covered:#x} of warp {warp}")
        right += good
        whole += full
    places = {s.warp for s in hang.stands}
    for group, _ in said:
        for warp in group.warps:
            if (group.cta.number, warp) not in places:
                wrong.append(f"warp {warp} of CTA {group.cta.number} has ended")
    return Score(
        len(hang.stands), right, whole, tuple(dict.fromkeys(wrong)), tuple(dict.fromkeys(beyond))
    )


def judged(hang: Hang, stand: Stand, wait: Wait) -> tuple[str, str]:
    """What a wait that is said of lanes is: ``right``, ``open`` (not all of it is said), ``missed``
    (it is not known to be one) or ``wrong``, and why."""
    if isinstance(wait, Running | Sleep):
        return ("right" if stand.kind == "spin" else "missed"), ""
    whole = True
    match stand.kind, wait:
        case "mbarrier", MbarrierWait():
            rank = hang.machine.ctas[stand.cta].rank if stand.cta != stand.warp[0] else None
            own = hang.machine.ctas[stand.warp[0]].rank
            said = None if wait.rank == own else wait.rank
            if wait.address is not None and (wait.address, said) != (stand.address, rank):
                return "wrong", f"it is mbarrier {stand.address:#x} of CTA {stand.cta}"
            if wait.parity is not None and wait.parity != stand.parity:
                return "wrong", f"the parity is {stand.parity}"
            whole = wait.address is not None and wait.parity is not None
        case "named", NamedBarrierWait():
            if wait.id is not None and wait.id != stand.number:
                return "wrong", f"it is barrier {stand.number}"
            if wait.whole and stand.threads is not None:
                return "wrong", f"it has {stand.threads} threads"
            if wait.threads is not None and wait.threads != stand.threads:
                return "wrong", f"it has {stand.threads} threads"
            whole = wait.id is not None and (wait.whole or wait.threads is not None)
        case "cluster", ClusterBarrierWait():
            pass
        case "lanes", WarpWait():
            if wait.missing is not None and wait.missing != stand.missing:
                return "wrong", f"lanes {stand.missing:#x} are missing"
            whole = wait.missing is not None
        case "poll", Poll():
            if wait.address is not None and wait.address != stand.address:
                return "wrong", f"the word is at {stand.address:#x}"
            word = _word(hang, stand)
            if wait.value is not None and word is not None and wait.value != word:
                return "wrong", f"the word is {word:#x}"
            whole = wait.address is not None
        case "pool", RegisterPoolWait():
            pass
        case _:
            return "wrong", f"they wait for {stand.what}"
    return ("right" if whole else "open"), ""


def _word(hang: Hang, stand: Stand) -> int | None:
    if stand.space == "shared":
        shared = hang.machine.ctas[stand.cta].shared
        return int.from_bytes(shared[stand.address : stand.address + 4], "little")
    found = hang.machine.memory.find(stand.address, 4)
    if found is None or not all(found[0].known[found[1] : found[1] + 4]):
        return None
    return int.from_bytes(found[0].data[found[1] : found[1] + 4], "little")


def _has_just_passed(stand: Stand, entry: Entry) -> bool:
    """Whether what is said is that lanes have come to a barrier, and wait unless they have just
    passed it: so they have."""
    wait = entry.wait
    return isinstance(wait, NamedBarrierWait) and not wait.certain and stand.kind != "named"


def _state(hang: Hang, stand: Stand, entry: Entry) -> Iterator[str]:
    """False statements about the barrier."""
    if entry.passing and not _has_just_passed(stand, entry):
        yield f"the wait of warp {stand.warp[1]} is said to be over: {entry.wait}"
    if entry.mbarrier is not None and stand.kind == "mbarrier":
        state = hang.machine.state(hang.machine.ctas[stand.cta], stand.address)
        if state != entry.mbarrier:
            yield f"{entry.wait}: {entry.mbarrier}, but it is {state}"


def _supplies(
    could: set[tuple[int, int]], come: set[tuple[int, int]], stand: Stand, entry: Entry
) -> tuple[list[str], list[str]]:
    """Of what is said to be able to release a wait: what lacks, and what is too much.

    ``could``: the warps that can, as the simulator finds them; ``come``: all that come to what
    counts for it.
    """
    if stand.kind not in ("mbarrier", "named", "cluster") or stand.warp[0] != entry.ctas[0]:
        return [], []
    if isinstance(entry.wait, NamedBarrierWait) and entry.wait.id is None:
        return [], []
    said = {(g.cta.number, w) for s in entry.supplies for g in s.groups for w in g.warps}
    surely = {
        (g.cta.number, w) for s in entry.supplies if s.certain for g in s.groups for w in g.warps
    }
    missed = [
        f"{entry.wait}: warp {warp} of CTA {cta} could release it, which is not said"
        for cta, warp in sorted(could - said)
    ]
    more = [
        f"{entry.wait}: warp {warp} of CTA {cta} does not come to what would release it"
        for cta, warp in sorted(surely - come - {stand.warp})
    ]
    return missed, more


def caused(hang: Hang, found: Autopsy) -> Caused:
    """Compares the cause that is found with the PTX with that of a check of the embedded PTX with
    the launch as it was."""
    (launch,) = found.launches
    diagnosis = launch.diagnosis
    if diagnosis is None or diagnosis.match is None:
        why = "no diagnosis" if diagnosis is None else diagnosis.missing
        return Caused("none", False, why)
    match = diagnosis.match
    why = "; ".join((*match.says, *match.differs))
    if match.finding is None:
        return Caused(match.kind, False, why)
    module = read(hang.image.ptx or "", f"{launch.name}.ptx")
    entry = next(e for e in module.entries if e.name == hang.kernel.launch.entry)
    truth = check(lower(module, entry, hang.kernel.launch)).findings
    buffers = "|".join(sorted({re.escape(p.name) for p in hang.kernel.launch.params}))
    blamed = _blame(match.finding, r"arg\d+")
    others = [_blame(one, buffers) for one in truth]
    if blamed not in others:
        why += f"; blames {blamed}, not {others[:2]}"
    return Caused(match.kind, blamed in others, why)


def _blame(finding: Finding, buffers: str) -> tuple[object, ...]:
    """The cause of a finding, the warps of its culprits and what they did. The dump does not tell
    names of buffers, and the PTX that is checked here has no lines of the source."""

    def said(text: str) -> str:
        return re.sub(rf"\b({buffers})\b", "?", re.sub(r"\bline \d+|\S+:\d+", "?", text))

    culprits = ((c.role, c.warp, said(c.action)) for c in finding.culprits)
    return finding.rule, said(finding.cause), tuple(culprits)


# ------------------------------------------------------------------ kernels


def own_kernels() -> Iterator[Kernel]:
    """Those of `tests.autopsy.hanging_kernels`."""
    for name, one in KERNELS.items():
        yield Kernel(name, compiled(one.source), "sm_90a", one.launch)


def _emitted(name: str, built: Callable[[], Program], inputs: Inputs) -> Iterator[Kernel]:
    """A kernel as it is emitted; nothing if it is rejected, or cannot be emitted."""
    try:
        source = emit(built())
        launch = describe(source, inputs)
    except TilesimError:
        return
    yield Kernel(name, compiled(source.text, source.arch), source.arch, launch)


def gallery() -> Iterator[Kernel]:
    """Rows of the gallery and of its bugs that fail."""
    for case in cases():
        if case.expected == "failed":
            yield from _emitted(case.target.removeprefix("tilesim.kernels."), case.build, None)


def faults() -> Iterator[Kernel]:
    """The corpus of kernels with faults."""
    for variant in VARIANTS:
        if not variant.is_right:
            build = partial(variant.kernel.build, **variant.params)
            yield from _emitted(variant.name, build, variant.inputs)


def _folder(folder: Path) -> Iterator[Kernel]:
    """CUDA C++ beside descriptions of launches (``name.cu``, ``name.launch.json``), with what
    it includes from the folder."""
    for path in sorted(folder.glob("*.cu")):
        described = path.with_suffix(".launch.json")
        if described.exists():
            text = _INCLUDE.sub(lambda one: (folder / one[1]).read_text(), path.read_text())
            text = _STANDARD.sub("", text.replace("#pragma once", ""))
            try:
                cubin = compiled(_INTEGERS + text)
            except Unsupported:  # it needs headers that NVRTC lacks
                continue
            entry = kernels(Image(cubin))[0].name
            said = {"entry": entry, **json.loads(described.read_text())}
            (launch,) = loads_all(json.dumps(said), str(described))
            yield Kernel(path.stem, cubin, "sm_90a", launch)


_INCLUDE = re.compile(r'#include "([^"]+)"')
_STANDARD = re.compile(r"#include <[^>]+>")
_INTEGERS = """
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;
typedef unsigned long long uint64_t; typedef int int32_t; typedef long long int64_t;
"""

SETS = {"own": own_kernels, "gallery": gallery, "faults": faults}


@dataclass
class Totals:
    """What has been counted: dumps; stands of lanes; hangs that both machines have, and the
    causes that were found of them; statements that are false."""

    dumps: int = 0
    left_out: int = 0
    stands: int = 0
    right: int = 0
    whole: int = 0
    wrong: int = 0
    beyond: int = 0
    alike: int = 0
    same: int = 0
    culprits: int = 0
    slow: int = 0

    def __str__(self) -> str:
        return (
            f"{self.dumps} dumps ({self.left_out} kernels left out): {self.right} of {self.stands} "
            f"stands right, {self.whole} with all that is asked; {self.wrong} false statements, "
            f"{self.beyond} suppliers that do not come to it\n"
            f"with PTX: {self.same} of {self.alike} the same hang, {self.culprits} the right "
            f"culprit, {self.slow} took more than 10 s"
        )


@click.command()
@click.argument("sets", nargs=-1, type=click.Choice(sorted(SETS)))
@click.option(
    "--cuda", type=click.Path(path_type=Path), help="A folder of .cu with .launch.json beside each."
)
@click.option("--only", default="", help="Kernels whose names have this.")
@click.option("--keep", type=click.Path(path_type=Path), help="A folder to keep the dumps in.")
@click.option("--ptx/--no-ptx", default=True, help="Look for the cause, too.")
@click.option("--seed", default=0, help="Of the places at which warps stand.")
def main(
    sets: tuple[str, ...], cuda: Path | None, only: str, keep: Path | None, ptx: bool, seed: int
) -> None:  # fmt: skip
    """Print what autopsies say of simulated dumps, and how much of it is right."""
    totals = Totals()
    chosen = [SETS[name]() for name in sets or (() if cuda else SETS)]
    chosen += [_folder(cuda)] if cuda else []
    with TemporaryDirectory() as folder:
        for kernel in chain(*chosen):
            if only in kernel.name:
                for line in _row(kernel, keep or Path(folder), totals, ptx=ptx, seed=seed):
                    click.echo(line)
    click.echo(totals)


def _row(
    kernel: Kernel, folder: Path, totals: Totals, *, ptx: bool, seed: int
) -> Iterator[str]:  # fmt: skip
    """Lines about one kernel."""
    try:
        hang = Hang(kernel, seed)
        differs = list(hang.differences())
    except (Unsupported, TilesimError) as why:
        if str(why) != ENDS:
            totals.left_out += 1
            yield f"left out {kernel.name}: {why}"
        return
    place = hang.dump().write(folder / f"{_file_name(kernel.name)}.nvcudmp")
    score = scored(hang, autopsy(place, check=False), agrees=not differs)
    totals.dumps += 1
    totals.stands += score.stands
    totals.right += score.right
    totals.whole += score.whole
    totals.wrong += len(score.wrong)
    totals.beyond += len(score.beyond)
    line = f"{'alike ' if not differs else 'unlike'} {kernel.name}: {score.right}/{score.stands}"
    if ptx:
        began = monotonic()
        result = caused(hang, autopsy(place))
        took = monotonic() - began
        if not differs:
            totals.alike += 1
            totals.same += result.kind == "same"
            totals.culprits += result.culprit
            totals.slow += took > 10
        line += f", {result.kind}, {'right' if result.culprit else 'no'} culprit, {took:.1f} s"
        if not result.culprit:
            line += f": {result.why}"
    yield line
    yield from (f"    the simulator: {text}" for text in differs[:1])
    yield from (f"    false: {text}" for text in score.wrong)


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


if __name__ == "__main__":
    main()
