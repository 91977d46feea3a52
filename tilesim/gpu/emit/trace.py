"""In-kernel timestamps: warps note when they enter and leave instructions that others can see.

The host gives a buffer of 64-bit words: a header (word 0: how many clusters are recorded, word 1:
records per warp), then one area per warp of those clusters, in the order of cluster, rank, warp. An
area is a header (see `COUNT` and its neighbours), the records of the warp's leader (the lane that
``elect.sync`` chooses), and room for a part of that many records by other lanes, where those act
alone. A record is two words: ``%clock`` at the end and, in the upper half, at the start;
what was executed: a detail (`detail_of`) and, from bit 16 on, the number of the site plus one.

``%clock64`` counts per SM. A pair with ``%globaltimer`` at the start and the end of every warp puts
all of them on one axis, and gives the upper halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilesim.gpu.emit.emitter import Emitter
from tilesim.gpu.errors import EmitError
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, Exit
from tilesim.ir.ops.mbarrier import MbarrierTestWait, MbarrierTryWait, MbarrierWait
from tilesim.ir.ops.wgmma import WgmmaCommitGroup, WgmmaFence, WgmmaMmaAsync
from tilesim.ir.program import Program, instructions

#: words of the buffer's header, of an area's header, of a record
BUFFER_WORDS, AREA_WORDS, RECORD_WORDS = 8, 8, 2
#: words of an area's header: records that other lanes made, those of the leader that were lost,
#: (cycles, ns) at the start and at the end, number of the CTA plus one, records of the leader
COUNT, LOST, START, END, CTA, ROOM = 0, 1, 2, 4, 6, 7
#: other lanes have room for this part of the leader's records
OTHERS = 4
#: a record has sixteen bits for the number of its site plus one
_SITES = (1 << 16) - 1
#: every lane of a warp
_ALL = 0xFFFFFFFF

_POLLS = (MbarrierTestWait, MbarrierTryWait)
_TRACED = (
    fx.Arrives, fx.Commits, fx.Completes, fx.Expects, fx.JoinsBarrier, fx.JoinsCluster,
    fx.RemoteStore, fx.Waits, fx.WaitsGroup,
)  # fmt: skip

_TRACE = f"""
DEVICE u64 trace_clock64() {{
  u64 now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now) :: "memory");
  return now;
}}

// %clock is slower to read
DEVICE u32 trace_clock() {{ return (u32)trace_clock64(); }}

DEVICE bool trace_leader() {{
  return (threadIdx.x & 31) == __ffs(__activemask()) - 1;
}}

// a warp's area (null if it is not recorded), where its next record goes, how many more fit
struct Trace {{
  u64* area;
  u64* next;
  s32 left;

  DEVICE void store(u64* where, u64 first, u64 second) {{
    asm volatile("st.global.v2.u64 [%0], {{%1, %2}};"
                 :: "l"(where), "l"(first), "l"(second) : "memory");
  }}
  DEVICE void anchor(u32 word) {{
    if (!area || !trace_leader()) return;
    const u64 clock = trace_clock64();
    store(area + word, clock, globaltimer());
  }}
  DEVICE void begin(u64* buffer, u32 cluster, u32 warp, u32 cta) {{
    const u64 room = buffer[1];
    const u64 words = {AREA_WORDS} + {RECORD_WORDS} * (room + room / {OTHERS});
    area = cluster < buffer[0] ? buffer + {BUFFER_WORDS} + warp * words : nullptr;
    next = area + {AREA_WORDS};
    left = area ? (s32)room : 0;
    if (area && trace_leader()) area[{CTA}] = cta + 1;
    anchor({START});
  }}
  // by the leader
  DEVICE void record(u32 start, u32 what) {{
    const u32 end = trace_clock();
    if (--left >= 0) {{
      store(next, (u64)start << 32 | end, what);
      next += {RECORD_WORDS};
    }}
  }}
  // by any lane
  DEVICE void record_slowly(u32 start, u32 what) {{
    const u32 end = trace_clock();
    if (!area) return;
    const u64 room = area[{ROOM}], count = atomicAdd((u32*)(area + {COUNT}), 1u);
    u64* where = area + {AREA_WORDS} + {RECORD_WORDS} * (room + count);
    if (count < room / {OTHERS}) store(where, (u64)start << 32 | end, what);
  }}
  DEVICE void finish() {{
    if (area && left < 0) area[{LOST}] = -left;
    anchor({END});
  }}
}};
"""


def use_trace(e: Emitter) -> None:
    """Adds the recording to the prelude."""
    e.use("globaltimer")
    e.use("elect_sync")
    e.define("Trace", _TRACE)


def is_traced(op: Op) -> bool:
    """True if others can observe the instruction, if it waits, or if an engine carries it out."""
    if isinstance(op, (Exit, WgmmaMmaAsync)):
        return False
    return op.sync or any(
        isinstance(effect, _TRACED) or getattr(effect, "asynchronous", False)
        for effect in op.effects()
    )


def blocks(op: Op) -> bool:
    """True if the warp can be kept waiting in the instruction."""
    for effect in op.effects():
        match effect:
            case fx.Waits(poll=False) | fx.WaitsGroup() | fx.JoinsCluster(arrives=False):
                return True
            case fx.JoinsBarrier(waits=True) | fx.Registers(increase=True) | fx.AllocatesTmem():
                return True
            case fx.WaitsGrids():
                return True
            case _:
                pass
    return False


def barrier_of(op: Op) -> Mbar | None:
    """The mbarrier that the instruction touches, if any."""
    for effect in op.effects():
        mbar = getattr(effect, "mbar", None)
        if isinstance(mbar, Mbar):
            return mbar
    return None


def named_barrier_of(op: Op) -> Expr | None:
    """The number of the named barrier that the instruction joins, if any."""
    return next((x.id for x in op.effects() if isinstance(x, fx.JoinsBarrier)), None)


@contextmanager
def recorded(e: Emitter, op: Op) -> Iterator[None]:
    """The lines written inside execute ``op``; a poll is recorded only if its answer is yes.

    wgmma would suffer from instructions between those of a group: one record covers the group, from
    its fence to its commit.
    """
    if e.options.trace and isinstance(op, Exit):
        e.line("trace.finish();")
    if not e.options.trace or not is_traced(op):
        yield
        if e.options.trace and isinstance(op, WgmmaFence):
            e.line("trace_wgmma = trace_clock();")
        return
    site = len(e.traced)
    if site == _SITES:
        raise EmitError(
            f"there are more than {_SITES} instructions to trace: use run-time loops (k.loop) for "
            "some of those that Python unrolls",
            op.loc,
        )
    e.traced.append(op)
    start = "trace_wgmma" if isinstance(op, WgmmaCommitGroup) else f"started_{site}_"
    if start != "trace_wgmma":
        e.line(f"const u32 {start} = trace_clock();")
    yield
    what, found = f"{site + 1 << 16:#x}u", detail_of(e, op)
    if found:
        what += f" | (({found}) & 0xffff)"
    answer = f"{e.var(op.result)} && " if isinstance(op, _POLLS) else ""
    e.line(_record(e, answer, f"({start}, {what});"))
    if e.lanes == "all":
        e.line("__syncwarp();")


def _record(e: Emitter, answer: str, arguments: str) -> str:
    """The statement that records. Reading the clock after an election of the warp makes sure that
    a barrier before it has been passed."""
    ops = list(instructions(e.program))
    whole = all(op.mask == _ALL for op in ops if isinstance(op, ElectSync))
    if any(isinstance(op, Exit) for op in ops) or not whole or e.lanes == "some":
        e.apart.append(len(e.traced) - 1)
        return f"if ({answer}trace_leader()) trace.record_slowly{arguments}"
    if e.lanes == "all":
        return f"if ({answer}elect_sync({_ALL:#x})) trace.record{arguments}"
    return f"if ({answer}true) trace.record{arguments}"


def detail_of(e: Emitter, op: Op) -> str:
    """What is known only at run time: ``2 * index + parity`` of an mbarrier, or the number of a
    named barrier; empty if there is nothing."""
    mbar, named = barrier_of(op), named_barrier_of(op)
    if mbar is not None:
        index = f"({e.cast(mbar.index, 'u32')}) << 1"
        if isinstance(op, (MbarrierWait, MbarrierTestWait, MbarrierTryWait)) and op.parity:
            return f"({index}) | (({e.cast(op.phase, 'u32')}) & 1)"
        return index
    return "" if named is None else e.cast(named, "u32")


def preamble(program: Program, names: set[str]) -> list[str]:
    """Declarations at the start of the kernel; adds the special registers they need."""
    cta = "blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)"
    lines = [f"const u32 trace_cta = {cta};"]
    cluster = slot = "trace_cta"
    if program.cluster_size > 1:
        names |= {"cluster_id", "cluster_rank"}
        cluster = "cluster_id"
        slot = f"(cluster_id * {program.cluster_size} + cluster_rank)"
    warp = f"{slot} * {program.warps} + (threadIdx.x >> 5)"
    return [
        *lines,
        "u32 trace_wgmma = 0;",
        "Trace trace;",
        f"trace.begin(trace_buffer, {cluster}, {warp}, trace_cta);",
    ]
