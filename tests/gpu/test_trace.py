"""Traces of GPU runs: what is emitted, and the words of a buffer as timelines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.report.programs import file, pair
from tests.report.trace_format import problems
from tilesim import Builder, Program, bf16, f32, s32
from tilesim.cli import main
from tilesim.dsl.kernel import Kernel
from tilesim.gpu import trace as gpu_trace
from tilesim.gpu.compile import Binary, Resources, compile_cubin
from tilesim.gpu.driver import DeviceInfo
from tilesim.gpu.emit import emit
from tilesim.gpu.emit import trace as emission
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.errors import DeviceError, EmitError
from tilesim.gpu.trace import GpuRecording, buffer, recording
from tilesim.gpu.watchdog import Executor, Hang, Waiter
from tilesim.kernels.hopper import matmul_v5, matmul_v7, softmax
from tilesim.sim.observers.timeline import Slice, Timeline, record

from . import needs
from .fake_gpu import write_area
from .programs import PROGRAMS
from .test_watchdog import SCRIPT

DEVICE = DeviceInfo("GPU X", (9, 0), 132, "13.0")
Record = tuple[int, int, int, int]


def transfer(ctas: int = 2) -> Program:
    """A producer and a consumer."""
    k = Builder("pair", warps=2)
    k.launch(grid=(ctas,))
    full = k.mbarriers("full", 2)
    tile, g = k.shared("tile", s32, (32,)), k.tensor("g", s32, (32,))
    out = k.tensor("out", s32, (32,))
    with k.one_thread():
        k.mbarrier.init(full[1], 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected():
        k.mbarrier.arrive_expect_tx(full[1], tile.nbytes)
        k.bulk.load(tile, g, full[1])
    with k.role("consumer", 1), k.elected():
        k.mbarrier.wait(full[1], 0)
        k.fence.proxy_async()
        k.bulk.store(out, tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    return k.finish()


def sites(source: Source) -> dict[str, int]:
    """Numbers of the traced instructions by mnemonic."""
    return {op.mnemonic: n for n, op in enumerate(source.traced)}


def made(
    source: Source,
    areas: Sequence[tuple[int, int, int, Sequence[Record], int]],
    *,
    clusters: int = 2,
    limit: int = 1000,
    hang: Hang | None = None,
) -> GpuRecording:
    """The recording of areas (number, clock, ns, records, cycles) of `write_area`."""
    words = buffer(source.program, clusters, limit)
    for number, clock, ns, records, cycles in areas:
        cta = number // source.program.warps
        write_area(words, number, cta, clock, ns, records, cycles)
    return recording(source, words, DEVICE, hang)


def on(timeline: Timeline, track: str) -> list[Slice]:
    """The slices of a track, by its name."""
    return [s for s in timeline.slices if str(s.track) == track]


@pytest.fixture(scope="module")
def source() -> Source:
    return emit(transfer(), trace=True)


# ------------------------------------------------------------------ times


def test_ctas_with_different_counters_are_on_one_axis(source: Source) -> None:
    arrive = sites(source)["mbarrier.arrive.expect_tx"]
    early, late = 7 << 40, 12345
    done = made(source, [
        (0, early, 10**18, [(100, 140, arrive, 2)], 2000),
        (2, late, 10**18 + 300, [(100, 140, arrive, 2)], 2000),
    ])  # fmt: skip
    assert done.megahertz == 2000.0
    first, second = (on(t, "producer warp 0") for t in done.timelines)
    assert [(s.start, s.end) for s in first] == [(50.0, 70.0)]
    assert [(s.start, s.end) for s in second] == [(350.0, 370.0)]
    assert [(t.unit, t.ctas) for t in done.timelines] == [("ns", (0,)), ("ns", (1,))]


def test_the_steps_of_the_timer_average_out(source: Source) -> None:
    """A timer that advances 32 ns at a time, seen by many warps."""
    program = transfer(64)
    words = buffer(program, 64, 64)
    for number in range(128):
        start, cycles = 37 * number, 4000 + 11 * number
        write_area(words, number, number // 2, 2 * start, 0, [], cycles)
        area = words[8:].reshape(128, -1)[number]
        area[emission.START + 1] = start // 32 * 32
        area[emission.END + 1] = (start + cycles // 2) // 32 * 32
    done = recording(emit(program, trace=True), words, DEVICE)
    assert done.megahertz == pytest.approx(2000, rel=1e-3)


def test_the_lower_half_of_a_counter_may_overflow(source: Source) -> None:
    arrive = sites(source)["mbarrier.arrive.expect_tx"]
    clock = (5 << 32) - 150
    done = made(source, [(0, clock, 0, [(100, 200, arrive, 2), (300, 320, arrive, 2)], 2000)])
    slices = on(done.timelines[0], "producer warp 0")
    assert [(s.start, s.end) for s in slices] == [(50.0, 100.0), (150.0, 160.0)]


def test_without_a_timer_times_are_cycles(source: Source) -> None:
    wait = sites(source)["mbarrier.wait"]
    done = made(source, [(1, 999, 5, [(10, 30, wait, 2)], 0)])
    assert done.megahertz is None
    (slice_,) = on(done.timelines[0], "consumer warp 1")
    assert (done.timelines[0].unit, slice_.start, slice_.end) == ("cycle", 10.0, 30.0)


def test_slices_of_lanes_that_diverge_do_not_overlap(source: Source) -> None:
    arrive = sites(source)["mbarrier.arrive.expect_tx"]
    records = [(100, 400, arrive, 2), (200, 300, arrive, 2), (350, 500, arrive, 2)]
    slices = on(made(source, [(0, 0, 0, records, 2000)]).timelines[0], "producer warp 0")
    assert [(s.start, s.end) for s in slices] == [(50, 200), (200, 200), (200, 250)]


# ------------------------------------------------------------------ what is shown


def test_waits_are_called_as_in_the_simulator(source: Source) -> None:
    number = sites(source)
    records = [
        (10, 20, number["barrier.sync"], 0), (30, 90, number["mbarrier.wait"], 2),
        (100, 110, number["cp.async.bulk.wait_group"], 0),
    ]  # fmt: skip
    done = made(source, [(1, 0, 0, records, 2000)])
    names = [(s.kind, s.name) for s in on(done.timelines[0], "consumer warp 1")]
    assert names == [
        ("wait", "waits at named barrier 0"), ("wait", "waits on full[1] parity 0"),
        ("wait", "waits in cp.async.bulk.wait_group"),
    ]  # fmt: skip
    simulated = {s.name for s in record(source.program).timelines[0].slices if s.kind == "wait"}
    assert {name for _, name in names[:2]} <= simulated


def test_tracks_are_those_of_the_simulator(source: Source) -> None:
    done = made(source, [(n, 0, 0, [], 2000) for n in range(4)])
    simulated = record(source.program, clusters=2)
    for measured, expected in zip(done.timelines, simulated.timelines, strict=True):
        assert measured.tracks == tuple(t for t in expected.tracks if t.warp is not None)


def test_warps_that_never_started_have_no_track(source: Source) -> None:
    done = made(source, [(1, 0, 0, [], 2000)])
    assert [str(t) for t in done.timelines[0].tracks] == ["consumer warp 1"]
    assert done.timelines[1].tracks == ()


def test_a_copy_lasts_until_the_wait_that_sees_it(source: Source) -> None:
    number = sites(source)
    load, wait = number["cp.async.bulk.load"], number["mbarrier.wait"]
    done = made(source, [
        (0, 0, 0, [(100, 120, load, 2), (4000, 4020, load, 2)], 9000),
        (1, 0, 0, [(20, 60, wait, 2), (70, 90, wait, 0), (130, 700, wait, 2)], 9000),
    ])  # fmt: skip
    (copy,) = on(done.timelines[0], "TMA")
    assert (copy.name, copy.start, copy.end) == ("cp.async.bulk.load (until seen)", 50.0, 350.0)
    assert copy.kind == "engine"
    (flow,) = done.timelines[0].flows
    assert (str(flow.start), flow.start_time, str(flow.end)) == ("producer warp 0", 50.0, "TMA")


def test_a_wait_for_another_barrier_or_in_another_cta_sees_nothing(source: Source) -> None:
    number = sites(source)
    load, wait = number["cp.async.bulk.load"], number["mbarrier.wait"]
    done = made(source, [
        (0, 0, 0, [(100, 120, load, 2)], 9000), (1, 0, 0, [(130, 700, wait, 0)], 9000),
        (3, 0, 0, [(130, 700, wait, 2)], 9000),
    ])  # fmt: skip
    assert on(done.timelines[0], "TMA") == on(done.timelines[1], "TMA") == []


def test_a_store_lasts_until_the_wait_for_its_group(source: Source) -> None:
    number = sites(source)
    store, commit, wait = (
        number[f"cp.async.bulk.{x}"] for x in ("store", "commit_group", "wait_group")
    )
    records = [
        (100, 110, store, 0), (120, 130, commit, 0), (140, 150, store, 0), (160, 400, wait, 0),
        (420, 430, commit, 0), (440, 800, wait, 0),
    ]  # fmt: skip
    done = made(source, [(1, 0, 0, records, 2000)])
    spans = [(str(s.track), s.start, s.end) for s in done.timelines[0].slices if s.kind == "engine"]
    assert spans == [("TMA", 50.0, 200.0), ("TMA 2", 70.0, 400.0)]


def test_wgmma_groups_are_seen_by_their_wait() -> None:
    k = Builder("mma", warps=4)
    a, b = k.shared("a", bf16, (64, 64), swizzle=128), k.shared("b", bf16, (64, 64), swizzle=128)
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[:, :16], b[:, :16])
    k.wgmma.commit_group()
    k.wgmma.wait_group(1)
    k.wgmma.wait_group(0)
    source = emit(k.finish(), trace=True)
    assert [op.mnemonic for op in source.traced] == [
        "wgmma.commit_group", "wgmma.wait_group", "wgmma.wait_group",
    ]  # fmt: skip
    records = [(100, 200, 0, 0), (220, 240, 1, 0), (260, 900, 2, 0)]
    done = made(source, [(n, 0, 0, records, 2000) for n in range(4)])
    (product,) = (s for s in done.timelines[0].slices if s.kind == "engine")
    assert (product.name, product.start, product.end) == ("wgmma.mma_async (until seen)", 50, 450)
    assert str(product.track) == "tensor core"
    issued = on(done.timelines[0], "warp 2")[0]
    assert (issued.kind, issued.name) == ("run", "wgmma.mma_async ... commit_group")


def test_a_hang_ends_in_waits_that_never_end(source: Source) -> None:
    wait = source.traced[sites(source)["mbarrier.wait"]]
    waiter = Waiter(0, 1, "consumer", "waits on full[1] parity 0", wait.loc)
    records = [(100, 300, sites(source)["barrier.sync"], 0)]
    done = made(
        source, [(1, 0, 0, records, 0), (0, 0, 0, [], 400)],
        hang=Hang("pair", (waiter,), (), 1.0),
    )  # fmt: skip
    stuck = [s for s in done.timelines[0].slices if s.stuck]
    assert [(s.name, s.start, str(s.track)) for s in stuck] == [
        ("waits on full[1] parity 0", 150.0, "consumer warp 1")
    ]
    assert stuck[0].end == done.timelines[0].end > 150.0


def test_what_found_no_room_is_counted(source: Source) -> None:
    arrive = sites(source)["mbarrier.arrive.expect_tx"]
    records = [(100 * n, 100 * n + 10, arrive, 2) for n in range(9)]
    done = made(source, [(0, 0, 0, records, 2000), (2, 0, 0, records[:2], 2000)], limit=8)
    assert [len(t.slices) for t in done.timelines] == [4, 2]
    assert [t.truncated for t in done.timelines] == [True, False]
    assert done.lost == 5
    words = buffer(source.program, 1, 8)
    write_area(words, 0, 0, 0, 0, records[:1], 2000)
    words[emission.BUFFER_WORDS + emission.COUNT] = 3  # by other lanes, with room for one
    assert recording(source, words, DEVICE).lost == 2


def test_no_record_at_all_is_an_error(source: Source) -> None:
    with pytest.raises(DeviceError, match="no warp has left a trace"):
        recording(source, buffer(source.program, 1, 8), DEVICE)


def test_the_buffer_is_bounded() -> None:
    program = matmul_v7.matmul.build()
    assert buffer(program, 3, 10**7).nbytes <= 1 << 28
    few = buffer(program, 1, 120)
    assert few[:2].tolist() == [1, 10]
    assert few.size == 8 + 12 * (8 + 2 * (10 + 2))


# ------------------------------------------------------------------ the emitted code


def body(text: str) -> str:
    return text[text.index('extern "C"') :]


def test_instructions_are_surrounded_and_plain_code_is_not_changed(source: Source) -> None:
    text = body(source.text)
    assert "trace" not in body(emit(transfer()).text).replace("test_trace.py", "")
    wait = sites(source)["mbarrier.wait"]
    assert f"const u32 started_{wait}_ = trace_clock();" in text
    assert f"trace.record(started_{wait}_, {wait + 1 << 16:#x}u | " in text
    assert text.count("trace.finish();") == 1
    assert [p.kind for p in source.params][-1] == "trace"
    barrier = sites(source)["barrier.sync"]
    assert f"if (elect_sync(0xffffffff)) trace.record(started_{barrier}_, " in text


def test_only_successful_polls_are_recorded() -> None:
    k = Builder("poll", warps=1)
    bar, done = k.mbarriers("bar"), k.var("done", 0)
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    k.mbarrier.test_wait(done, bar, 0)
    assert "if (done && elect_sync(0xffffffff)) trace.record(" in emit(k.finish(), trace=True).text


def test_warps_whose_lanes_may_be_gone_record_with_any_lane() -> None:
    k = Builder("leaves", warps=1)
    with k.if_(k.lane_id < 3):
        k.exit()
    k.sync_threads()
    text = body(emit(k.finish(), trace=True).text)
    assert "if (trace_leader()) trace.record_slowly(started_0_, " in text
    assert text.index("trace.finish();") < text.index("return;")
    assert text.count("trace.finish();") == 2


def test_too_many_instructions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emission, "_SITES", 3)
    with pytest.raises(EmitError, match=r"more than 3 instructions to trace: use run-time loops"):
        emit(transfer(), trace=True)


@needs.compiler
@pytest.mark.parametrize("kernel", [matmul_v5.matmul, matmul_v7.matmul, softmax.softmax])
def test_traced_kernels_use_no_local_memory(kernel: Kernel) -> None:
    resources = compile_cubin(emit(kernel.build(), trace=True)).resources
    assert (resources.local_memory, resources.warnings) == (0, ())


@needs.recent_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_instruction_can_be_traced(name: str) -> None:
    compile_cubin(emit(PROGRAMS[name], trace=True, watchdog=True))


# ------------------------------------------------------------------ the command

KERNEL = file(pair).replace("ctas: int = 1", "ctas: int = 2")


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command line in a folder with pair.py, with the simulator as the GPU."""

    def pretend(source: Source) -> Binary:
        return Binary(source, b"right", Resources(0, 0, 0, 0, 0))

    monkeypatch.setattr(gpu_trace, "compile_cubin", pretend)
    monkeypatch.setattr(gpu_trace, "Executor", lambda: Executor(SCRIPT))
    monkeypatch.setattr(gpu_trace, "probe", lambda: None)
    monkeypatch.chdir(tmp_path)
    Path("pair.py").write_text(KERNEL)
    return lambda *arguments: CliRunner().invoke(main, ["trace", "pair.py", *arguments])


def test_a_gpu_trace_is_written(invoke: Callable[..., Result]) -> None:
    result = invoke("--backend", "gpu", "--clusters", "2")
    assert result.exit_code == 0, result.output
    assert "wrote trace.json: 60 ns on fake, 2 CTAs, 24 slices" in result.output
    document = json.loads(Path("trace.json").read_text())
    assert document["otherData"] == {
        "kernel": "pair", "unit": "ns", "source": "gpu", "gpu": "fake", "driver": "0.0",
        "clock_mhz": 2000.0, "lost": 0,
    }  # fmt: skip
    assert problems(document) == []
    first = next(e for e in document["traceEvents"] if e["ph"] == "X")
    assert (first["ts"], first["dur"]) == (0, 0.01)


def test_both_backends_share_a_trace_and_a_scale(invoke: Callable[..., Result]) -> None:
    result = invoke("--backend", "both")
    assert result.exit_code == 0, result.output
    assert "one simulated cycle is shown as 0.500 ns" in result.output
    document = json.loads(Path("trace.json").read_text())
    assert problems(document) == []
    titles = {e["pid"]: e["args"]["name"] for e in document["traceEvents"]
              if e["name"] == "process_name"}  # fmt: skip
    assert titles == {1: "pair CTA 0 (simulator)", 2: "pair CTA 0 (GPU)"}
    assert [s["source"] for s in document["otherData"]["sources"]] == ["simulator", "gpu"]


def test_a_trace_that_is_cut_says_so(invoke: Callable[..., Result]) -> None:
    result = invoke("--backend", "gpu", "--limit", "8")
    assert "  cut       4 records on the GPU found no room; --limit keeps more" in result.output
    assert "  counters  none of barriers, nor arrows to waits: records are missing" in result.output
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert any(e["ph"] == "i" and "some records are missing" in e["name"] for e in events)


def test_the_trace_of_a_hang_is_written(invoke: Callable[..., Result]) -> None:
    result = invoke("--backend", "gpu", "--param", "parity=0")
    assert result.exit_code == 1
    assert "deadlock: pair did not end" in result.output
    assert "  counters  none of barriers, nor arrows to waits: the kernel hangs" in result.output
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    stuck = {e["name"] for e in events if e.get("args", {}).get("ends") == "never"}
    assert stuck == {"waits on empty[1] parity 0", "waits on full[1] parity 0"}


@needs.no_driver
def test_without_a_gpu_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pair.py").write_text(KERNEL)
    for backend in ("gpu", "both"):
        result = CliRunner().invoke(main, ["trace", "pair.py", "--backend", backend])
        assert result.exit_code == 2
        assert "there is no NVIDIA driver here" in result.stderr
    assert not Path("trace.json").exists()
