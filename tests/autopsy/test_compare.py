"""The deadlock of a check against the one of a dump: the same, the nearest, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from tilesim.autopsy import compare as compare_module
from tilesim.autopsy.compare import Match, compare
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.find_ptx import FoundPtx, find_ptx, loaded
from tilesim.autopsy.launch import Assumed, Rebuilt, rebuild
from tilesim.autopsy.ptx_lines import waits_of, with_positions
from tilesim.autopsy.waits import (
    Group,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    Running,
    Sleep,
    Wait,
)
from tilesim.checker import Report, check
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.image import Image
from tilesim.cubin.sass import Function, Instruction, SourceLine
from tilesim.ir.mir import Mir
from tilesim.ir.text.mir import fingerprint
from tilesim.ptx.launch import Field, Launch, Map, Pointer, Scalar, Struct
from tilesim.ptx.parser import read
from tilesim.ptx.syntax import Module
from tilesim.records import dataclass, replace
from tilesim.sim.machine import lanes
from tilesim.sim.machine.machine import TimeIsUp
from tilesim.sim.machine.schedule import RandomChooser

DUMPS = Path(__file__).parent / "dumps"
#: lines of the PTX at which the consumers and the producer of the ring wait
CONSUMES, PRODUCES = 277, 164
FULL, EMPTY = 0xC00, 0xC10


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Each program is checked once, and few other schedules are run."""
    known: dict[str, Report] = {}

    def checked(mir: Mir, **limits: Any) -> Report:
        key = fingerprint(mir)
        if key not in known:
            known[key] = check(mir, **limits)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilesim.autopsy.compare.check", checked)
        patch.setattr("tilesim.autopsy.compare._SCHEDULES", 1)
        yield


@dataclass(frozen=True)
class Hang:
    """A kernel in a dump, ready to be compared."""

    dump: CoreDump
    ptx: FoundPtx
    module: Module
    code: Function
    rebuilt: Rebuilt

    def at(self, line: int) -> Instruction:
        """The instruction on an mbarrier that comes from a line of the PTX."""
        return next(i for i in self.code.code.values() if i.ptx == line and i.base == "SYNCS")

    def groups(self, *waits: tuple[tuple[int, ...], Wait]) -> list[Group]:
        """Where the warps of each CTA stand; of warp 4 one lane, which is the ring's producer."""
        return [
            Group(cta, warps, 1 if warps == (4,) else lanes.FULL, 0, wait)
            for cta in self.dump.ctas for warps, wait in waits
        ]  # fmt: skip

    def ring(self, full: int = FULL + 8, parity: int = 1, empty: int = EMPTY + 8) -> list[Group]:
        """Where those of the ring stand."""
        consumes, produces = self.at(CONSUMES), self.at(PRODUCES)
        return self.groups(
            ((0, 1, 2, 3), MbarrierWait(consumes, True, "", full, None, parity)),
            ((4,), MbarrierWait(produces, True, "", empty, None, 0)),
        )

    def compared(self, groups: list[Group], **numbers: int) -> Match:
        """What a check with other numbers in the launch says."""
        rebuilt, launch = self.rebuilt, self.rebuilt.launch
        if "bad" in numbers:
            params = (*launch.params[:3], Scalar("arg3", "u32", numbers["bad"]))
            launch = replace(launch, params=params)
        if "ctas" in numbers:
            launch = replace(launch, grid=(numbers["ctas"], 1, 1))
        rebuilt = replace(rebuilt, launch=launch)
        return compare(self.dump, self.ptx, self.module, rebuilt, groups)


@pytest.fixture(scope="module")
def ring() -> Hang:
    """The ring's."""
    dump = CoreDump(DUMPS / "ring.nvcudmp.gz")
    grid, own = dump.grids[0], dump.image_of(dump.grids[0])
    assert own is not None
    image = Image(own.data)
    symbol, code = image.symbol_at(grid.entry), function_at(image, grid.entry)
    assert symbol is not None
    assert code is not None
    kernel = loaded(dump, grid, image, image.info(symbol))
    ptx = find_ptx(kernel, environment={})
    assert isinstance(ptx, FoundPtx)
    made = rebuild(dump, grid, kernel, ptx)
    assert isinstance(made, Rebuilt)
    module = with_positions(ptx.module, kernel.name, ptx.text, code)
    return Hang(dump, ptx, module, code, made)


def test_the_hang_of_the_dump(ring: Hang) -> None:
    match = ring.compared(ring.ring())
    assert match.kind == "same"
    assert match.says == (
        "check finds this hang: in all 3 CTAs of the dump the same warps wait for the same as in "
        "its deadlock, at the same instructions and with the same parities",
        RACE,
    )
    assert match.differs == match.contradicts == ()
    assert match.finding is not None
    assert match.finding.cause == (
        "ring (CTA 0 warp 0) waits for phase 1 of CTA 0 ring::full+8 and has not waited for phase 0"
    )
    culprit = match.finding.culprits[0].loc
    assert (culprit.short, culprit.innermost.line) == ("ring.cu:21", CONSUMES)
    assert match.finding.participants[0].iterations[0].number == 2
    assert match.names == (
        (FULL, "ring::full+0"), (FULL + 8, "ring::full+8"),
        (EMPTY, "ring::empty+0"), (EMPTY + 8, "ring::empty+8"),
    )  # fmt: skip
    assert [one.name for one in match.assumed] == ["residency", "buffer sizes"]
    assert match.report is not None
    assert match.report.verdict == "failed"


#: all CTAs write the same rows
_RACE = (
    ": race: ring (CTA 1 warp 0) writes arg1+0..+128 and nothing orders it after the write by ring "
    "(CTA 0 warp 0) of arg1+0..+128 (and 1 more)"
)
RACE = f"check also finds another failure{_RACE}"
MAY = f"check also finds another failure, which may be the cause{_RACE}"
#: what the dump says otherwise, and what is said of that
OTHERWISE = {
    "another barrier of the ring": (
        {"full": FULL},
        "CTAs 0-2 warps 0-3: waits for mbarrier 0xc00, parity 1 at ring.cu:21; in the deadlock of "
        "check: waits on ring::full+8 parity 1 at ring.cu:21",
    ),
    "another parity": (
        {"parity": 0},
        "CTAs 0-2 warps 0-3: waits for mbarrier 0xc08, parity 0 at ring.cu:21; in the deadlock of "
        "check: waits on ring::full+8 parity 1 at ring.cu:21",
    ),
    "one barrier for two": (
        {"empty": FULL + 8},
        "CTAs 0-2 warp 4: waits for mbarrier 0xc08, parity 0 at ring.cu:19 (lane 0); in the "
        "deadlock of check: waits on ring::empty+8 parity 0 at ring.cu:19 (lane 0)",
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_another_hang(ring: Hang, name: str) -> None:
    otherwise, said = OTHERWISE[name]
    match = ring.compared(ring.ring(**otherwise))
    assert match.kind == "nearest"
    assert match.says == (
        "check finds a deadlock, of which that of the dump differs: 0 of 3 CTAs stand as in it",
        MAY,
    )
    assert [d.replace("/src/examples/ring-of-two/", "") for d in match.differs] == [said]
    assert match.finding is not None


def test_warps_elsewhere(ring: Hang) -> None:
    """At another instruction, at a named barrier, ended, not known to wait."""
    first, *others = ring.ring()
    line = SourceLine("a.cu", 3)
    produces = replace(ring.at(PRODUCES), lines=(line,))
    for wait, said in (
        (MbarrierWait(produces, True, "", FULL + 8, None, 1), "waits for mbarrier 0xc08, parity 1"),
        (NamedBarrierWait(produces, True, "", 1, 64, False, True), "waits for named barrier 1"),
        (Running(produces, False, ""), "is not known to wait"),
    ):
        match = ring.compared(
            [replace(first, warps=(0, 1, 2)), replace(first, warps=(3,), wait=wait), *others]
        )
        assert match.kind == "nearest"
        assert match.says[0].endswith("2 of 3 CTAs stand as in it")
        (difference,) = match.differs
        assert difference.startswith(f"CTA 0 warp 3: {said}")
        assert " at a.cu:3; in the deadlock of check: waits on ring::full+8" in difference
    ended = ring.compared([replace(first, warps=(0, 1, 2)), *others])
    assert ended.differs == (
        "CTA 0 warp 3: has ended; in the deadlock of check: waits on ring::full+8 parity 1 at "
        "ring.cu:21",
    )


def test_lanes_that_do_not_wait(ring: Hang) -> None:
    """All lanes of a consumer wait, of the producer one, whichever it is."""
    first, second, *others = ring.ring()
    assert ring.compared([first, replace(second, lanes=1 << 7), *others]).kind == "same"
    apart = [replace(first, lanes=0xFF), replace(first, lanes=lanes.FULL & ~0xFF)]
    assert ring.compared([*apart, second, *others]).kind == "same"
    for few in ([apart[1], second], [first, replace(second, lanes=3)]):
        match = ring.compared([*few, *others])
        assert match.kind == "nearest"
    assert match.differs[0].endswith(
        "ring.cu:19 (lanes 0-1); in the deadlock of check: waits on ring::empty+8 parity 0 at "
        "ring.cu:19 (lane 0)"
    )


def test_what_the_dump_does_not_say_contradicts_nothing(ring: Hang) -> None:
    bare = Instruction(0, "", "SYNCS.PHASECHK", ())
    groups = ring.groups(
        ((0, 1, 2, 3), MbarrierWait(bare, True, "", None, None, None)),
        ((4,), MbarrierWait(bare, True, "", EMPTY + 8, None, 0)),
    )
    match = ring.compared(groups)
    assert match.kind == "same"
    assert match.says[1:] == (
        "instructions were compared as far as the cubin has a table of PTX lines",
        "the state of mbarriers was not compared: it is not in the dump",
        RACE,
    )


def test_a_wait_for_what_is_not_known_may_be_for_an_mbarrier(ring: Hang) -> None:
    """A loop that sleeps may; one that reads a word does not, nor does an instruction elsewhere."""
    first, *others = ring.ring()
    consumes = ring.at(CONSUMES)
    asleep = ring.compared([replace(first, wait=Sleep(consumes, True, "")), *others])
    assert asleep.kind == "same"
    assert asleep.says[0].endswith(
        "; for which barriers and parities some of them wait is not in the dump"
    )
    for wait in (
        Sleep(ring.at(PRODUCES), True, ""),
        Poll(consumes, True, "", "shared", FULL + 8, None, 4, 0, True),
        Poll(Instruction(0, "", "LD", ()), True, "", "global", 1 << 40, None, 4, 0, True),
    ):
        assert ring.compared([replace(first, wait=wait), *others]).kind == "nearest", wait


def test_the_first_try_of_a_wait_is_the_wait(ring: Hang) -> None:
    """The cubin's table says that it comes from a line before."""
    tried = next(
        i for i in ring.code.code.values() if i.opcode.endswith("TRYWAIT") and i.ptx == 273
    )
    first, *others = ring.ring()
    wait = MbarrierWait(tried, True, "", FULL + 8, None, 1)
    assert ring.compared([replace(first, wait=wait), *others]).kind == "same"
    produces = replace(tried, ptx=127)  # before another wait
    wait = MbarrierWait(produces, True, "", FULL + 8, None, 1)
    assert ring.compared([replace(first, wait=wait), *others]).kind == "nearest"


def test_ctas_may_stand_as_others_do(ring: Hang) -> None:
    match = ring.compared(ring.ring(), ctas=1)
    assert match.kind == "same"
    assert match.says[1:] == ("2 CTAs of the dump match another one of the check",)


def test_warps_may_stand_as_others_do(ring: Hang) -> None:
    """Which of several warps comes first may be up to the schedule."""
    first, second, *_ = ring.ring()
    cta = [replace(first, warps=(1, 2, 3, 4)), replace(second, warps=(0,))]
    match = ring.compared(cta)
    assert match.kind == "same"
    assert match.says[1:] == ("2 warps of the dump match another one of the check", RACE)
    few = ring.compared([replace(first, warps=(2, 3, 4)), replace(second, warps=(0,))])
    assert few.kind == "nearest"
    (difference,) = few.differs
    assert difference.startswith("CTA 0 warp 1: has ended; in the deadlock of check: waits on ring")


def test_the_hang_of_another_schedule(ring: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two consumers may run ahead, and have ended when the others wait for what is never filled."""
    monkeypatch.setattr(
        "tilesim.autopsy.compare._by_chance", lambda seed, cluster: RandomChooser(5045 + cluster)
    )
    monkeypatch.setattr("tilesim.autopsy.compare._state_at", lambda *given, **named: None)
    wait = MbarrierWait(ring.at(CONSUMES), True, "", FULL, None, 0)
    match = ring.compared(ring.groups(((2, 3), wait)), ctas=1)
    assert match.kind == "same", match
    assert match.finding is not None
    assert match.finding.participants[0].deed is not None
    assert match.finding.participants[0].deed.parity == 0
    assert match.report is not None
    assert match.finding not in match.report.findings


def test_a_kernel_that_is_proved(ring: Hang) -> None:
    match = ring.compared(ring.ring(), bad=0, ctas=1)
    assert match.kind == "proved"
    assert match.says[0].startswith("check proves this kernel with this launch (every schedule of")
    assert match.says[1] == "the dump may contradict what is listed here"
    assert [one.rpartition(" (")[2] for one in match.contradicts] == [
        "U12)", "residency)", "buffer sizes)",
    ]  # fmt: skip
    assert match.finding is None
    running = ring.groups(((0,), Running(ring.at(CONSUMES), False, "")))
    match = ring.compared(running, bad=0, ctas=1)
    assert match.says[1] == (
        "in CTA 0-2 warps are not known to wait: the kernel may have been running, not hung"
    )


def test_another_failure_may_be_the_cause(ring: Hang) -> None:
    """All CTAs write the same rows, which is a race, and none is ever stuck."""
    match = ring.compared(ring.ring(), bad=0)
    assert match.kind == "failed"
    assert match.finding is not None
    assert match.finding.rule == "race"
    assert match.says[0].startswith(
        "check finds no deadlock, but another failure, which may be the cause: race: ring (CTA 1"
    )


def test_an_access_beyond_a_size_that_was_taken_says_nothing(ring: Hang) -> None:
    launch = ring.rebuilt.launch
    params = (launch.params[0], Pointer("arg1", 64), *launch.params[2:])
    small = replace(ring.rebuilt, launch=replace(launch, params=params))
    match = compare(ring.dump, ring.ptx, ring.module, small, ring.ring())
    assert match.kind == "open"
    assert match.says[0].startswith(
        "check ends at an access beyond the size that was taken for a buffer: "
    )
    known = replace(small, assumed=())
    assert compare(ring.dump, ring.ptx, ring.module, known, ring.ring()).kind == "failed"


def test_the_time_limit_ends_a_comparison(ring: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*given: Any, **named: Any) -> Any:
        raise TimeIsUp

    monkeypatch.setattr("tilesim.autopsy.compare.ends", late)
    with pytest.raises(KeyboardInterrupt):  # before its time: it is the user's
        ring.compared(ring.ring())
    match = compare(ring.dump, ring.ptx, ring.module, ring.rebuilt, ring.ring(), time_limit=1e-9)
    assert match.kind == "failed"
    assert match.says == (
        "check says: deadlock: all 5 live warps wait for each other; the time limit left no time "
        "to compare that with the dump",
    )
    monkeypatch.setattr("tilesim.autopsy.compare.check", check)
    match = compare(ring.dump, ring.ptx, ring.module, ring.rebuilt, ring.ring(), time_limit=1e-3)
    assert match.kind == "open"
    assert "its time limit of" in match.says[0]


def test_a_launch_that_the_kernel_refuses_is_not_checked(ring: Hang) -> None:
    refused = replace(ring.rebuilt, launch=replace(ring.rebuilt.launch, block=(2048, 1, 1)))
    match = compare(ring.dump, ring.ptx, ring.module, refused, ring.ring())
    assert match.kind == "none"
    assert match.says[0].startswith("the kernel cannot be checked: ")


# ---------------------------------------------------------------------- words that are polled

POLLS = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 f_param_0)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [f_param_0];
    cvta.to.global.u64 %rd2, %rd1;
A:
    ld.acquire.gpu.global.u32 %r, [%rd2];
    setp.eq.u32 %p, %r, 0;
    @%p bra A;
B:
    ld.acquire.gpu.global.u32 %r, [%rd2+4];
    setp.ne.u32 %p, %r, 5;
    @%p bra B;
    ret;
}
"""


def polling(ring: Hang, line: int) -> Match:
    """A kernel that polls two words, and warps that stand at a line of its PTX."""
    module = read(POLLS, "f.ptx")
    ptx = FoundPtx(POLLS, "f.ptx", "", True, "", (), module, module.entries[0])
    launch = Launch("f", (3, 1, 1), (32, 1, 1), params=(Pointer("arg0", 1 << 20),))
    rebuilt = Rebuilt(launch, (Assumed("buffer sizes", "large"),))
    at = Instruction(0, "", "LD.E.STRONG.GPU", (), ptx=line)
    groups = ring.groups(((0,), Poll(at, True, "", "global", 16, None, 4, None, True)))
    return compare(ring.dump, ptx, module, rebuilt, groups)


@pytest.mark.parametrize(("line", "kind"), [(13, "same"), (15, "same"), (17, "nearest")])
def test_polls_are_told_by_their_loop(ring: Hang, line: int, kind: str) -> None:
    """The word is taken to be 0 at the start, so the first loop is never left."""
    match = polling(ring, line)
    assert match.kind == kind, match
    unsaid = "which words are polled was not compared, only in which loops"
    assert (unsaid in match.says) == (kind == "same")
    assert match.assumed[-1] == Assumed(
        "contents", "what arg0 held at the start is not in the dump: zeros"
    )


# ---------------------------------------------------------------------- maps, and what is refused

MAPS = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry f(.param .align 64 .b8 f_param_0[128], .param .align 64 .b8 f_param_1[128],
    .param .align 8 .b8 f_param_2[16])
{
    .shared .align 8 .b8 bar[8];
    .reg .b32 %r<3>;
    .reg .pred %p;
    mov.u32 %r1, bar;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p, %r2, 0;
    @%p bra B;
    mbarrier.init.shared::cta.b64 [%r1], COUNT;
B:
    bar.sync 0;
A:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%r1], 0;
    @!%p bra A;
    ret;
}
"""


def of_maps(ring: Hang, count: int) -> Match:
    """A kernel that is given two maps of one buffer, and waits for what never comes."""
    text = MAPS.replace("COUNT", str(count))
    module = read(text, "f.ptx")
    ptx = FoundPtx(text, "f.ptx", "", True, "", (), module, module.entries[0])
    one = Map("arg0", "bf16", (64, 32), (128,), (64, 8))
    other = Map("arg0", "f32", (32, 32), (128,), (32, 8))
    inside = Struct("arg2", 16, (Field(0, Pointer("arg0", 4096, 256)),), bytes(16))
    launch = Launch("f", (3, 1, 1), (32, 1, 1), params=(one, other, inside))
    wait = MbarrierWait(Instruction(0, "", "SYNCS", (), ptx=19), True, "", 0x400, None, 0)
    return compare(ring.dump, ptx, module, Rebuilt(launch, ()), ring.groups(((0,), wait)))


def test_maps_that_see_one_buffer_in_different_ways(
    ring: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilesim.autopsy.compare._state_at", lambda *given, **named: None)
    match = of_maps(ring, 1)
    assert match.kind == "same", match
    assert [one.name for one in match.assumed] == ["maps"]


def test_a_kernel_that_is_rejected_fails(ring: Hang) -> None:
    match = of_maps(ring, 1 << 20)
    assert match.kind == "failed"
    assert match.finding is None
    assert match.says[0].startswith("check rejects the kernel, which may be the cause: f.ptx:15: ")


TWO = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry f()
{
    .shared .align 8 .b8 bar[32];
    .reg .b32 %r<5>;
    .reg .pred %p;
    mov.u32 %r1, bar;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p, %r2, 0;
    @%p bra B;
    mbarrier.init.shared::cta.b64 [%r1], 1;
    mbarrier.init.shared::cta.b64 [%r1+8], 1;
    mbarrier.init.shared::cta.b64 [%r1+16], 1;
B:
    bar.sync 0;
    shr.u32 %r3, %r2, 5;
    shl.b32 %r3, %r3, 3;
    add.s32 %r4, %r1, %r3;
A:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%r4], 0;
    @!%p bra A;
    ret;
}
"""


def of_two(ring: Hang, monkeypatch: pytest.MonkeyPatch, text: str, second: int, ctas: int) -> Match:
    """A kernel whose two warps wait for an mbarrier each, in the dump for the one at 0x400 and for
    the one at ``second``; their states are not known."""
    monkeypatch.setattr("tilesim.autopsy.compare._state_at", lambda *given, **named: None)
    module = read(text, "f.ptx")
    ptx = FoundPtx(text, "f.ptx", "", True, "", (), module, module.entries[0])
    (line,) = waits_of(text)
    at = Instruction(0, "", "SYNCS", (), ptx=line)
    groups = ring.groups(
        *(((n,), MbarrierWait(at, True, "", a, None, 0)) for n, a in enumerate((0x400, second)))
    )
    made = Rebuilt(Launch("f", (ctas, 1, 1), (64, 1, 1)), ())
    return compare(ring.dump, ptx, module, made, groups)


@pytest.mark.parametrize(("second", "kind"), [(0x408, "same"), (0x410, "nearest")])
def test_barriers_of_one_variable_keep_their_distance(
    ring: Hang, monkeypatch: pytest.MonkeyPatch, second: int, kind: str
) -> None:
    assert of_two(ring, monkeypatch, TWO, second, 3).kind == kind


TRIES = TWO.replace("A:\n", "A:\n    mov.u32 %r3, 0;\nC:\n").replace(
    "    @!%p bra A;\n",
    "    @%p bra D;\n    add.s32 %r3, %r3, 1;\n    setp.lt.s32 %p, %r3, 4;\n    @%p bra C;\n"
    "    bra A;\nD:\n",
)


@pytest.mark.parametrize(("second", "kind"), [(0x408, "same"), (0x410, "open")])
def test_tries_that_go_on_and_on(
    ring: Hang, monkeypatch: pytest.MonkeyPatch, second: int, kind: str
) -> None:
    """Four tries at a time, in a loop that never ends: no schedule ends in a deadlock."""
    monkeypatch.setattr("tilesim.autopsy.compare._SECONDS", 60.0)  # whatever else runs
    before = process_time()
    match = of_two(ring, monkeypatch, TRIES, second, 1)
    assert process_time() - before < 20  # of a minute
    assert match.kind == kind, match
    assert match.report is not None
    assert match.report.verdict == "bounded"
    if kind == "same":
        assert match.says[0].startswith(
            "the run of check does not end: the same warps wait for the same mbarriers as in "
        )
        assert match.finding is not None
        assert match.finding.rule == "deadlock"
        assert {p.loc.line for p in match.finding.participants} == {25}


def test_ctas_are_compared_with_those_that_stand_otherwise(
    ring: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a whole GPU has as many CTAs as the dump."""
    counted, asked = list[object](), vars(compare_module)["_of_run"]

    def many(machines: Any) -> Any:
        found = asked(machines)
        return {n: found[n % len(found)] for n in range(1000)}

    def differences(*given: Any) -> Any:
        counted.append(given)
        return before(*given)

    before = vars(compare_module)["_differences"]
    monkeypatch.setattr("tilesim.autopsy.compare._of_run", many)
    monkeypatch.setattr("tilesim.autopsy.compare._differences", differences)
    assert ring.compared(ring.ring(parity=0)).kind == "nearest"
    assert len(counted) < 50


@pytest.mark.parametrize(("at", "kind"), [(FULL, "same"), (FULL + 8, "nearest")])
def test_a_barrier_that_no_warp_waits_for_may_differ(
    ring: Hang, monkeypatch: pytest.MonkeyPatch, at: int, kind: str
) -> None:
    before = vars(compare_module)["_state_at"]

    def state_at(cta: Any, address: int, arch: tuple[int, int]) -> Any:
        state = before(cta, address, arch)
        return state._replace(pending=state.pending + 7) if address == at else state

    monkeypatch.setattr("tilesim.autopsy.compare._state_at", state_at)
    match = ring.compared(ring.ring())
    assert match.kind == kind, match
    if kind == "same":
        assert "mbarriers that no warp waits for are in another state than in its deadlock" in (
            match.says
        )
        (differs,) = match.differs
        assert differs.startswith("CTAs 0-2: mbarrier 0xc00 is in a phase of parity ")


CLUSTER = TWO.replace("f()\n", "f() .reqnctapercluster 3, 1, 1\n").replace(
    "    shr.u32 %r3, %r2, 5;\n", "    mov.u32 %r3, %cluster_ctarank;\n    min.u32 %r3, %r3, 1;\n"
)


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ((0, 1, 1), None),
        (
            (0, 0, 0),
            "CTAs 1-2 warp 0: waits for mbarrier 0x400, parity 0; in the deadlock of check",
        ),
        (
            (1, 1, 1),
            "CTAs 1-2 warp 0: waits for mbarrier 0x408, parity 0; in the deadlock of check",
        ),
        ((0, 1), "CTA 0: CTA 2 of its cluster has ended; in the deadlock of check: waits on bar+8"),
    ],
)
def test_ctas_of_a_cluster_stand_as_those_of_one_cluster(
    ring: Hang, monkeypatch: pytest.MonkeyPatch, waits: tuple[int, ...], said: str | None
) -> None:
    """The first waits for another barrier than the others."""
    monkeypatch.setattr("tilesim.autopsy.compare._state_at", lambda *given, **named: None)
    dump = CoreDump(DUMPS / "ring.nvcudmp.gz")
    for cta in dump.ctas:
        cta.cluster_size = (3, 1, 1)
    module = read(CLUSTER, "f.ptx")
    ptx = FoundPtx(CLUSTER, "f.ptx", "", True, "", (), module, module.entries[0])
    at = Instruction(0, "", "SYNCS", (), ptx=waits_of(CLUSTER)[0])
    groups = [
        Group(cta, (0,), lanes.FULL, 0, MbarrierWait(at, True, "", 0x400 + 8 * n, None, 0))
        for cta, n in zip(dump.ctas, waits, strict=False)
    ]
    made = Rebuilt(Launch("f", (3, 1, 1), (32, 1, 1), (3, 1, 1)), ())
    match = compare(dump, ptx, module, made, groups)
    if said is None:
        assert (match.kind, match.differs) == ("same", ()), match
    else:
        assert match.kind == "nearest", match
        assert match.differs[0].startswith(said)
