"""What is reported of dumps: text, JSON, SARIF, a page; what is not known; exit codes."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tilesim.autopsy import Autopsy, autopsy, pipeline, render
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.wait_for import Entry
from tilesim.autopsy.waits import MbarrierWait, Standing, Trap
from tilesim.cli import main
from tilesim.cubin import disassembly
from tilesim.cubin.errors import CubinError
from tilesim.files import show_below
from tilesim.layout import Style
from tilesim.records import replace
from tilesim.report import autopsy as formats
from tilesim.report.autopsy import json as json_report

from . import dump_writer as writer

ROOT = Path(__file__).parents[2]
DUMPS = Path(__file__).parent / "dumps"
GOLDEN = Path(__file__).parent / "golden"
REAL = (
    "ring", "waits", "states", "spin_on_word", "dependent", "too_many_consumers", "relayed",
    "dropped_answer",
)  # fmt: skip
RING = str(DUMPS / "ring.nvcudmp.gz")


def command(*arguments: str) -> Result:
    """Runs ``tilesim autopsy``."""
    return CliRunner().invoke(main, ["autopsy", *arguments])


def report(name: str) -> str:
    """The report on a real dump, with lines of its source."""
    show_below([DUMPS])
    try:
        return render(autopsy(DUMPS / f"{name}.nvcudmp.gz"), Style(verbose=True))
    finally:
        show_below([])


@pytest.mark.parametrize("name", REAL)
def test_reports_are_these(name: str) -> None:
    assert report(name) == (GOLDEN / f"{name}.txt").read_text(), "python -m tests.autopsy.update"


def text(dump: writer.Dump, folder: Path) -> str:
    """The report on a dump, with its lines joined."""
    return " ".join(render(autopsy(dump.write(folder / "core"))).split())


# ---------------------------------------------------------------------- several kernels, or none

SPIN, LATE = 0x7F0000000000, 0x7F0000100000


def spinning(grid: int, sm: int, x: int) -> writer.Cta:
    """A CTA of a warp."""
    lanes = [writer.Lane(n, SPIN + 16, (n, 0, 0), [0] * 8) for n in range(32)]
    return writer.Cta(grid, (x, 0, 0), [writer.Warp(lanes)], sm=sm, shared=bytes(2048))


def two_kernels(sms: int = 4) -> writer.Device:
    """One kernel on each of 4 SMs, and one that has not begun."""
    spin = writer.Grid(1, SPIN, (4, 1, 1), (32, 1, 1), registers=255)
    late = writer.Grid(2, LATE, (8, 2, 1), (128, 1, 1), registers=168, status=1)
    return writer.Device([spin, late], [spinning(1, n, n) for n in range(4)], sms=sms)


def test_a_kernel_that_does_not_get_its_sms_is_told_from_the_one_that_has_them(
    tmp_path: Path,
) -> None:
    said = text(writer.Dump([two_kernels()]), tmp_path)
    assert (
        "OPEN the kernel at 0x7f0000000000 grid 4, block 32, sm_90; 4 of 4 CTAs resident "
        "PENDING the kernel at 0x7f0000100000 grid 8x2, block 128, sm_90; 0 of 16 CTAs resident, "
        "16 not started held the kernel at 0x7f0000000000: 4 CTAs on 4 of 4 SMs; a CTA has 32 "
        "threads of 255 registers each, 2,048 bytes of shared memory "
        "whether it waits for these, or for an earlier kernel, is not in the dump"
    ) in said
    assert "the code of a kernel is not in the dump" in said


def test_each_device_is_named_where_there_are_several(tmp_path: Path) -> None:
    late = writer.Grid(7, LATE, (8, 1, 1), (128, 1, 1), status=1)
    said = text(writer.Dump([two_kernels(), writer.Device([late])]), tmp_path)
    assert "4 of 4 CTAs resident on device 0" in said
    assert "8 not started on device 1 held no other kernel runs on its device" in said


def test_kernels_that_wait_in_a_queue_are_counted(tmp_path: Path) -> None:
    late = [writer.Grid(n, LATE + n, (1, 1, 1), (32, 1, 1), status=1) for n in range(1, 21)]
    said = text(writer.Dump([writer.Device(late)]), tmp_path)
    assert said.count("PENDING") == 8
    assert "and 12 kernels more that have not begun" in said


def test_ctas_that_do_not_run_are_told_from_those_that_do(tmp_path: Path) -> None:
    dump = writer.copy_of(CoreDump(Path(RING)))
    (device,) = dump.devices
    grids = [replace(device.grids[0], grid=(133, 1, 1))]
    path = replace(dump, devices=[replace(device, grids=grids)]).write(tmp_path / "core")
    said = " ".join(render(autopsy(path, check=False)).split())
    assert (
        "3 of 133 CTAs resident, 130 not started or ended; all 15 warps wait resident 3 CTAs on 3 "
        "of 132 SMs; a CTA has 160 threads of 32 registers each, 3,200 bytes of "
        "shared memory whether the other CTAs have ended or have not begun is not in the dump"
    ) in said


def test_nothing_runs(tmp_path: Path) -> None:
    path = writer.Dump([writer.Device()]).write(tmp_path / "core")
    result = command(str(path))
    assert (result.exit_code, result.stdout) == (0, "IDLE no kernel was running on 1 device\n")
    assert json.loads(command(str(path), "--format", "json").stdout)["exit"] == 0


def test_an_exception_of_an_sm_is_said(tmp_path: Path) -> None:
    device = writer.Device(sms=4, faults={2: writer.Sm(14, SPIN + 0x40)})
    path = str(writer.Dump([device]).write(tmp_path / "core"))
    result = command(path)
    assert "exception warp: illegal address, on SM 2 at 0x7f0000000040" in result.stdout
    assert result.exit_code == 1
    (said,) = json.loads(command(path, "--format", "json").stdout)["exceptions"]
    assert (said["sm"], said["number"], said["pc"]) == (2, 14, SPIN + 0x40)
    (run,) = json.loads(command(path, "--format", "sarif").stdout)["runs"]
    (rule,) = run["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"].startswith("The GPU has stopped the kernel: ")
    (one,) = run["results"]
    assert (one["ruleId"], one["level"]) == ("exception", "error")
    assert one["message"]["text"].startswith(
        "core: warp: illegal address, on SM 2 at 0x7f0000000040"
    )
    place = one["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"].endswith("/core")


# ---------------------------------------------------------------------- what is not known


def test_a_dump_without_shared_memory_says_which_flag_to_leave_out(tmp_path: Path) -> None:
    dump = replace(writer.copy_of(CoreDump(Path(RING))), flags=0b101111)

    def cut(sections: list[writer.Section]) -> None:
        for number, section in enumerate(sections):
            if section.name.startswith(".cudbg.shared."):
                sections[number] = writer.Section("", -0x80000000, b"")

    path = tmp_path / "core"
    path.write_bytes(dump.to_bytes(cut))
    said = " ".join(render(autopsy(path)).split())
    assert (
        "the dump has no shared memory (skip_shared_memory was set): the state of mbarriers is not "
        "known; leave that flag out of CUDA_COREDUMP_GENERATION_FLAGS"
    ) in said
    assert "0xc08" in said


# ---------------------------------------------------------------------- formats


@pytest.fixture(scope="module")
def ring() -> Autopsy:
    """The ring's dump, which hangs as a check of its PTX says."""
    return autopsy(RING)


@pytest.fixture
def source() -> Iterator[None]:
    """The source of the dumps is where the user says."""
    show_below([DUMPS])
    yield
    show_below([])


def test_json_says_what_waits_for_what_and_why(ring: Autopsy) -> None:
    document = json.loads(formats.render("json", ring))
    assert (document["schema"], document["exit"]) == ("tilesim.autopsy/1", 1)
    assert document["driver"] == {"release": "580.159", "cuda": "13.0"}
    assert document["devices"] == [{"number": 0, "arch": "sm_90", "sms": 132}]
    (launch,) = document["launches"]
    assert (launch["kernel"], launch["name"], launch["state"]) == (
        "_Z4ringPKfPfii", "ring", "hangs",
    )  # fmt: skip
    assert (launch["grid"], launch["block"], launch["cluster"]) == ([3, 1, 1], [160, 1, 1], None)
    assert launch["ctas"] == {"total": 3, "resident": [0, 1, 2], "ended": 0, "unknown": 0}
    consumer, producer = launch["entries"]
    assert (consumer["kind"], consumer["on"]) == (
        "mbarrier", {"address": 0xC08, "rank": None, "parity": 1},
    )  # fmt: skip
    assert (producer["kind"], producer["on"]) == (
        "mbarrier", {"address": 0xC18, "rank": None, "parity": 0},
    )  # fmt: skip
    assert [g["warps"] for g in consumer["groups"]] == [[0, 1, 2, 3]]
    assert (producer["groups"][0]["warps"], producer["groups"][0]["lanes"]) == ([4], [0])
    assert consumer["ctas"] == producer["ctas"] == [0, 1, 2]
    assert consumer["mbarrier"] == {"parity": 1, "pending": 1, "expected": 1, "tx": 0}
    assert [i["lines"][-1]["line"] for i in consumer["initialised"]] == [15]
    assert [(s["certain"], s["groups"][0]["warps"]) for s in consumer["supplies"]] == [(True, [4])]
    place = consumer["place"]
    assert place["instruction"].startswith("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [")
    assert [line["line"] for line in place["lines"]] == [10, 21]
    assert [g["warps"] for g in launch["cycle"]] == [[0, 1, 2, 3], [4]]
    diagnosis = launch["diagnosis"]
    assert diagnosis["ptx"]["certain"] is True
    assert (diagnosis["match"]["kind"], diagnosis["match"]["verdict"]) == ("same", "failed")
    assert diagnosis["match"]["finding"]["culprits"][0]["line"] == 21


@pytest.mark.usefixtures("source")
def test_sarif_has_a_result_at_the_line_of_the_culprit(ring: Autopsy) -> None:
    (run,) = json.loads(formats.render("sarif", ring))["runs"]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("deadlock", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("tests/autopsy/dumps/ring.cu")
    assert place["region"]["snippet"]["text"].startswith("wait(&full[i%2], (bad? i : i/2)&1);")
    assert place["region"]["startLine"] == 21
    said = result["message"]["text"]
    assert said.startswith("ring: all 15 warps wait. Cause: ")
    assert "check finds this hang" in said
    assert len(result["codeFlows"][0]["threadFlows"]) == 2


@pytest.mark.usefixtures("source")
def test_the_page_stands_alone_and_shows_the_cycle(ring: Autopsy) -> None:
    page = formats.render("html", ring)
    assert page.startswith("<!DOCTYPE html>")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    graph = page[page.index("<svg") : page.index("</svg>")]
    assert graph.count("edge bad") >= 2
    assert "warps 0-3" in graph
    assert "warp 4 (lane 0)" in graph
    assert "What waits for what" in page
    assert "check finds this hang" in page


def test_reports_are_written_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.json"
    result = command(RING, "--no-check", "--format", "json", "-o", str(target))
    assert (result.exit_code, result.stdout) == (1, "")
    document = json.loads(target.read_text())
    assert document["launches"][0]["diagnosis"] is None
    assert [path.name for path in target.parent.iterdir()] == ["report.json"]


def test_nvdisasm_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CubinError("nvdisasm is not here: pip install 'tilesim[autopsy]'")

    disassembly.disassemble.cache_clear()
    monkeypatch.setattr(disassembly, "nvdisasm", missing)
    result = command(RING)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: nvdisasm is not here: pip install 'tilesim[autopsy]'\n"


def test_an_error_of_the_check_hides_nothing_of_the_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object, **more: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(pipeline, "compare", broken)
    said = " ".join(render(autopsy(RING)).split())
    assert "warps 0-3 wait for mbarrier 0xc08, parity 1" in said
    assert "ended by an error of tilesim, a bug to report (MemoryError: too large)" in said


def keys(value: object) -> Iterator[str]:
    """The names of all fields of a document, but for those that `check` documents."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in ("finding", "repairs"):
                yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_the_documentation_has_every_field(ring: Autopsy) -> None:
    page = (ROOT / "docs" / "autopsy.md").read_text()
    document = json.loads(formats.render("json", ring))
    assert [name for name in {*keys(document)} if f"`{name}`" not in page] == []
    rows = dict(re.findall(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) \|(.*)\|$", page, re.MULTILINE))
    of_kinds = {kind: row for kinds, row in rows.items() for kind in re.findall(r"`(.+?)`", kinds)}
    for wait, kind in json_report.KINDS.items():
        own = {one.name for one in fields(wait)} - {one.name for one in fields(Standing)}
        assert kind in of_kinds, kind
        assert {name for name in own if f"`{name}`" not in of_kinds[kind]} == set(), kind


def one_cta(tiles: int, bad: int) -> writer.Dump:
    """The ring's dump with one CTA, as if it had been launched with other numbers."""
    dump = writer.copy_of(CoreDump(Path(RING)))
    (device,) = dump.devices
    (grid,) = device.grids
    params = (grid.params or b"")[:16] + struct.pack("<II", tiles, bad)
    grids = [replace(grid, grid=(1, 1, 1), params=params)]
    return replace(dump, devices=[replace(device, grids=grids, ctas=device.ctas[:1])])


def test_a_proof_of_what_hangs_says_what_may_not_hold(tmp_path: Path) -> None:
    said = text(one_cta(8, 0), tmp_path)
    assert "all 5 warps wait check proves this kernel with this launch" in said
    assert "assumes a copy overwrites what ordinary loads have read" in said
    assert "culprit" not in said


def test_a_deadlock_that_differs_is_told_from_this_one(tmp_path: Path) -> None:
    said = text(one_cta(2, 1), tmp_path)
    assert "check finds a deadlock, of which that of the dump differs: 0 of 1 CTAs" in said
    assert "differs CTA 0 warp 4: waits for mbarrier 0xc18" in said
    assert "deadlock: all 5 warps wait" not in said


# ---------------------------------------------------------------------- on a terminal


def test_colours_change_nothing_else(ring: Autopsy) -> None:
    said = render(ring, Style(colour=True))
    assert said.startswith("\x1b[31m\x1b[1mHANGS\x1b[0m \x1b[1mring\x1b[0m  grid 3")
    assert re.sub(r"\x1b\[\d+m", "", said) == render(ring)


def test_long_reports_are_cut_unless_all_is_asked_for(ring: Autopsy) -> None:
    (launch,) = ring.launches
    many = replace(ring, launches=(replace(launch, entries=launch.entries * 20),))
    said = render(many)
    assert said.count("wait for mbarrier 0xc08 (ring::full+8), parity 1, in CTAs 0-2") == 8
    assert "and 24 more groups of warps (--verbose shows them)" in said
    whole = render(many, Style(verbose=True))
    assert whole.count("wait for mbarrier 0xc08 (ring::full+8), parity 1, in CTAs 0-2") == 20
    assert "--verbose" not in whole


def test_many_ctas_are_counted(ring: Autopsy) -> None:
    (launch,) = ring.launches
    entries = (replace(launch.entries[0], ctas=tuple(range(0, 2000, 2))),)
    said = render(replace(ring, launches=(replace(launch, entries=entries),)))
    found = " ".join(said.split())
    assert "in CTAs 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ... (1,000 CTAs) at" in found


def test_a_time_that_is_over_is_said() -> None:
    said = " ".join(render(autopsy(RING, time_limit=0)).split())
    assert "unknown the time was over before ring was checked" in said
    assert "warps 0-3 wait for mbarrier 0xc08, parity 1" in said


@pytest.mark.parametrize(
    ("arch", "said"),
    [
        ((8, 0), "the layout of mbarriers on sm_80 is not known: their state is not said"),
        ((10, 0), "how mbarriers lie in memory on sm_100 is inferred: ptxas writes a new barrier"),
    ],
)
def test_what_is_said_of_mbarriers_has_its_evidence(
    tmp_path: Path, arch: tuple[int, int], said: str
) -> None:
    dump = writer.copy_of(CoreDump(Path(RING)))
    (device,) = dump.devices
    path = replace(dump, devices=[replace(device, arch=arch)]).write(tmp_path / "core")
    text = " ".join(render(autopsy(path, check=False)).split())
    assert f"unknown {said}" in text
    assert ("arrivals pending" in text) is (arch != (8, 0))


# ---------------------------------------------------------------------- what the ring's is not


def changed(ring: Autopsy, *entries: Entry, **more: Any) -> Autopsy:
    """The ring's autopsy with other entries."""
    (launch,) = ring.launches
    return replace(ring, launches=(replace(launch, entries=entries),), **more)


def said_of(found: Autopsy) -> str:
    """The report, with its lines joined."""
    return " ".join(render(found).split())


def test_a_wait_that_is_over_is_none(ring: Autopsy) -> None:
    consumer, producer = ring.launches[0].entries
    some = changed(ring, replace(consumer, passing=True), producer)
    assert (some.launches[0].state, some.code) == ("waits", 1)
    assert "WAITS ring" in said_of(some)
    assert "3 of 3 CTAs resident; 3 of 15 warps wait" in said_of(some)
    assert "others warps 0-3 wait for mbarrier 0xc08" in said_of(some)
    over = changed(ring, *(replace(e, passing=True) for e in (consumer, producer)))
    assert (over.launches[0].state, over.code) == ("open", 3)


def test_arrivals_at_one_place_are_said_together(ring: Autopsy) -> None:
    consumer, producer = ring.launches[0].entries
    (supply,) = consumer.supplies
    (group,) = supply.groups
    assert isinstance(group.wait, MbarrierWait)
    other = replace(group, warps=(5,), wait=replace(group.wait, address=0xC10))
    both = (supply, replace(supply, groups=(other,)))
    said = said_of(changed(ring, replace(consumer, supplies=both), producer))
    assert (
        "warps 4-5 (lane 0) have an arrival on it ahead, at ring.cu:9 < ring.cu:19; they wait at "
        "ring.cu:10 < ring.cu:19"
    ) in said


def test_what_is_in_another_cta_is_called_so(ring: Autopsy) -> None:
    (launch,) = ring.launches
    consumer, producer = launch.entries
    (supply,) = consumer.supplies
    far = replace(supply.groups[0], cta=launch.ctas[1])
    entry = replace(consumer, supplies=(replace(supply, groups=(far,), certain=False),))
    cycle = (ring.cycle[0], far)
    said = said_of(changed(ring, entry, producer, cycle=cycle))
    assert "warp 4 (lane 0) of CTA 1 has an arrival that may be on it ahead, at ring.cu:9" in said
    assert "cycle CTA 0 warps 0-3 -> CTA 1 warp 4 (lane 0) -> CTA 0 warps 0-3" in said


def test_the_cause_of_another_deadlock_is_not_that_of_this_one(ring: Autopsy) -> None:
    (launch,) = ring.launches
    assert launch.diagnosis is not None
    assert launch.diagnosis.match is not None
    match = replace(launch.diagnosis.match, kind="nearest", differs=("in all",))
    other = replace(launch, diagnosis=replace(launch.diagnosis, match=match))
    found = replace(ring, launches=(other,))
    (run,) = json.loads(formats.render("sarif", found))["runs"]
    assert "Cause: " not in run["results"][0]["message"]["text"]
    assert "deadlock: all 15 warps wait" not in said_of(found)
    assert "differs in all" in said_of(found)


def test_a_warp_that_could_release_and_waits_is_one_box_of_the_picture(ring: Autopsy) -> None:
    consumer, producer = ring.launches[0].entries
    groups = tuple(replace(group, warps=(4, 5)) for group in producer.groups)
    page = formats.render("html", changed(ring, consumer, replace(producer, groups=groups)))
    assert page.count('<rect class="box"') == 2


def test_a_warp_at_a_trap_is_a_result_at_its_line(ring: Autopsy) -> None:
    consumer, producer = ring.launches[0].entries
    (group,) = producer.groups[:1]
    wait = Trap(group.wait.instruction, True, "", 0)
    stopped = replace(producer, wait=wait, groups=(replace(group, wait=wait),))
    (run,) = json.loads(formats.render("sarif", changed(ring, consumer, stopped)))["runs"]
    assert {one["ruleId"] for one in run["results"]} == {"deadlock", "exception"}
    one = next(one for one in run["results"] if one["ruleId"] == "exception")
    assert one["message"]["text"].startswith("ring: ")
    assert "stands at a trap" in one["message"]["text"]
    assert one["locations"][0]["physicalLocation"]["region"]["startLine"] == 19
