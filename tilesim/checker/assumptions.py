"""What a verdict leans on: switches that only `practice` grants, and what is taken for granted.

Memory may have two addresses, an ordinary one and one of multimem (H20): accesses through both need
a ``fence.proxy.alias`` between them (PTX 8.6), also where threads wait for each other, and a launch
does not say which are the same. So a proof of a kernel that does both, and writes by one of them,
names the places (`aliases`).

``griddepcontrol.launch_dependents`` publishes nothing (SEMANTICS D16): the next grid may run from
then on, and sees what this one writes when it has completed, which is what ``griddepcontrol.wait``
there waits for. A dependent that does not wait is another program, and not looked at. So a proof
names the writes that come after the instruction, or that may not be performed when it is executed
(`early_dependents`). In the same way, a proof of a kernel with ``griddepcontrol.wait`` (D17) that
declares nothing to be of the grids before it names what it accesses before that (`earlier_grids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from tilesim.analysis.cfg import FlowGraph
from tilesim.errors import UsageError
from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.wording import did_you_mean

Kind = Literal["practice", "assumption", "model"]

#: what each switch accepts that the text does not (SEMANTICS 0.3, H and X)
SWITCHES: Mapping[str, str] = {
    "A6": "mbarrier.inval after lanes that vote, match, shuffle or elect since they used it",
    "A8": "the CTA may end before an asynchronous arrival on an mbarrier of its own is made",
    "A21": "a wait names a parity that is neither 0 nor 1, of which the last bit counts",
    "B14": "fence.proxy.tensormap::generic.acquire of a null pointer, which acquires no map",
    "E6": "a warp arrives at a named barrier and then waits at it in the same round",
    "E12": "which lane elect.sync chooses matters, and it is taken to be the first active one",
    "E15": "setmaxnreg not synchronised, or not the same in the four warps of a warpgroup",
    "F3": "registers of a wgmma are given numbers by moves behind the wgmma.fence",
    "G8": "another warp than the one that allocated frees tensor memory",
    "G9": "tcgen05.relinquish_alloc_permit of a CTA pair is not taken to wait for the other CTA",
    "H3": "fences of other threads count behind a barrier",
    "H23": "threads store one number to one address, or copy the same there; lanes of a store, any",
    "H24": "a copy overwrites the word of tcgen05.alloc without a proxy fence",
    "U1": "an arrival although no wait has seen the phase before it complete",
    "U4": "an mbarrier synchronises CTAs of a cluster with scope .cta",
    "U9": "tcgen05.commit with a multicast mask of 0 signals no mbarrier",
    "U12": "a copy overwrites what ordinary loads have read, without a proxy fence",
    "U14": "data of cp.async is read through the async proxy without a proxy fence",
    "U16": "an .aligned instruction is executed together by warps at different places",
    "U19": "tensor memory that a product reads is overwritten by a later operation in issue order",
    "U20": "tensor memory passes to other threads without the tcgen05 fences",
    "U21": "tcgen05.ld or st of a warpgroup with one address, without a quarter of the lanes",
    "U33": "tcgen05.ld is complete where all of its registers have been stored, without a wait",
}
#: F5: what one warp has waited for is taken to be over for the whole warpgroup
WARPGROUP_WAIT = "warpgroup-wait"
#: that ptxas keeps what was proved, which only ``--sass`` looks at
MACHINE_CODE = "machine-code"
#: what is left of that when ``--sass`` has looked
MACHINE_VALUES = "machine-values"
#: what proofs take for granted, by name
ASSUMPTIONS: Mapping[str, str] = {
    "program-order": "synchronising instructions of a warp act in program order",
    MACHINE_CODE: "the machine code that ptxas makes of the PTX synchronises as the PTX does",
    MACHINE_VALUES: "for all inputs conditions, addresses and numbers are those of the PTX",
    "registers": "how many registers a thread has at launch, which is not declared",
    "zero-state": "what memory holds at the start that the kernel changes and branches on: zeros",
    "in-bounds": "addresses that are taken from tensors which were not given are in bounds",
    "loops-end": "loops end whose trip count depends on data that was not given",
    "no-trap": "the kernel does not trap where data that was not given decides whether it does",
    "no-timeout": "no wait takes so long that the kernel gives it up and traps",
    "contents": "the contents of tensors that steer the kernel are those given",
    "reduction-order": "reductions of floats, by inc and by dec leave what their order has",
    "cluster-size": "the device launches clusters of more CTAs than are portable",
    "cluster-spread": "no two CTAs of a cluster share the tensor memory of one SM",
    WARPGROUP_WAIT: "wgmma.wait_group of one warp covers what its warpgroup issued",
    "device-size": "the GPU holds all CTAs of a cooperative launch at once",
    "earlier-grids": "grids before this one use nothing that it accesses before it waits for them",
    "dependents": "grids that start before this one has completed read nothing that it writes",
    "aliases": "memory with two addresses, one of multimem, has fence.proxy.alias between accesses",
    "launch-control": "what launch control grants",
    "ticket-order": "clusters that draw other numbers of tiles than were tried do the same",
}
#: denies all of them
ANY = "any"


@dataclass(frozen=True)
class Leaning:
    """Something that a proof leans on, by ``name``, and the lines to which it matters.

    ``kind``: a switch that only `practice` grants; an assumption; or what every verdict of the
    ``model`` assumes, without which there is none.
    """

    name: str
    text: str
    locs: tuple[Loc, ...]
    kind: Kind

    @property
    def conditional(self) -> bool:
        """Whether a proof without it says more."""
        return self.kind != "model"


def program_order(loc: Loc) -> Leaning:
    """What every proof assumes; ``loc``: the kernel."""
    return Leaning("program-order", ASSUMPTIONS["program-order"], (loc,), "model")


def machine_code(loc: Loc) -> Leaning:
    """What every proof assumes of which the machine code was not validated; ``loc``: the kernel."""
    return Leaning(MACHINE_CODE, ASSUMPTIONS[MACHINE_CODE], (loc,), "model")


def aliases(mir: Mir) -> Leaning | None:
    """What a proof takes for granted of memory with two addresses; None if there is none."""
    several: list[int] = []
    ordinary: list[int] = []
    for number, effects in enumerate(mir.effects):
        accesses = [e for e in effects if isinstance(e, fx.Reads | fx.Writes)]
        if any(e.view.space != "shared" for e in accesses):
            op = mir.code[number].what
            multimem = isinstance(op, Op) and "multimem" in op.mnemonic
            (several if multimem else ordinary).append(number)
    written = any(isinstance(e, fx.Writes) for n in (*several, *ordinary) for e in mir.effects[n])
    if not several or not ordinary or not written:
        return None
    locs = mir.code[several[0]].loc, mir.code[ordinary[0]].loc
    text = (
        f"if memory that multimem accesses reach ({locs[0]}) is accessed by ordinary addresses "
        f"({locs[1]}) only with a fence.proxy.alias between"
    )
    return Leaning("aliases", text, locs, "assumption")


_LAUNCHES = "griddepcontrol.launch_dependents"
#: scopes of fences behind which another grid sees what was written
_WIDE = ("gpu", "sys")


def early_dependents(graph: FlowGraph) -> Leaning | None:
    """What a proof takes for granted of the grids that a kernel lets start, if it is anything."""
    launches = [
        n for n, i in enumerate(graph.mir.code)
        if isinstance(i.what, Op) and i.what.mnemonic == _LAUNCHES
    ]  # fmt: skip
    writes = _in_global(graph.mir, _WRITES) if launches else []
    found: dict[Loc, None] = {}
    for launch in launches:
        late = [w for w in writes if not _performed(graph, w, launch)]
        if late:
            places = (launch, *late)
            found |= dict.fromkeys(graph.mir.code[number].loc for number in places)
    if not found:
        return None
    first = next(iter(found))
    text = (
        f"if grids that may start at {first} (griddepcontrol.launch_dependents) read nothing that "
        "this one writes before it has completed"
    )
    return Leaning("dependents", text, tuple(found), "assumption")


def earlier_grids(graph: FlowGraph) -> Leaning | None:
    """What a proof takes for granted of the grids that a kernel waits for, if it is anything.

    Where tensors are declared ``dependent``, a run looks at each access to them.
    """
    waits = [n for n, _ in graph.mir.all_of(fx.WaitsGrids)]
    if not waits or any(tensor.dependent for tensor in graph.mir.kernel.tensors):
        return None
    alone = [n for n in waits if graph.mir.code[n].guard is None]
    accesses = _in_global(graph.mir, _ACCESSES)
    early = [n for n in accesses if not any(_must_precede(graph, wait, n) for wait in alone)]
    if not early:
        return None
    wait, first, *_ = locs = [graph.mir.code[n].loc for n in (waits[0], *early)]
    text = (
        f"if the grids before this one have completed when it starts, or use nothing that it "
        f"accesses ({first}) before griddepcontrol.wait ({wait})"
    )
    return Leaning("earlier-grids", text, tuple(dict.fromkeys(locs)), "assumption")


_WRITES = fx.Writes, fx.WritesMap
_ACCESSES = *_WRITES, fx.Reads, fx.ReadsMap


def _in_global(mir: Mir, kinds: tuple[type[fx.Effect], ...]) -> list[int]:
    """The instructions that access, in one of these ways, what another grid can access."""
    return [
        number for number, effects in enumerate(mir.effects)
        if any(isinstance(e, kinds) and not _is_shared(e) for e in effects)
    ]  # fmt: skip


def _is_shared(effect: fx.Effect) -> bool:
    return isinstance(effect, fx.Reads | fx.Writes) and effect.view.space == "shared"


def _performed(graph: FlowGraph, write: int, launch: int) -> bool:
    """Whether all that a CTA does by ``write`` is done, and visible to the GPU, when one of its
    threads comes to ``launch``: a barrier of the CTA lies between, and a fence on the way."""
    effects = graph.mir.effects
    if graph.reaches(launch, write) or any(_completes_later(e) for e in effects[write]):
        return False
    barriers = [n for n, e in graph.mir.all_of(fx.JoinsBarrier) if e.waits and e.threads is None]
    fences = [n for n, e in graph.mir.all_of(fx.Orders) if _is_wide(e)]
    return any(
        _must_precede(graph, barrier, launch)
        and not graph.reaches(barrier, write)
        and any(
            graph.must_follow(write, fence)
            or (_must_precede(graph, fence, launch) and graph.must_follow(barrier, fence))
            for fence in fences
            if graph.mir.code[fence].guard is None and not graph.reaches(fence, write)
        )
        for barrier in barriers
        if graph.mir.code[barrier].guard is None
    )


def _is_wide(fence: fx.Orders) -> bool:
    return fence.releases and fence.scope in _WIDE and not (fence.in_shared or fence.inits)


def _completes_later(effect: fx.Effect) -> bool:
    return isinstance(effect, fx.WritesMap) or (
        isinstance(effect, fx.Writes) and effect.asynchronous
    )


def _must_precede(graph: FlowGraph, number: int, other: int) -> bool:
    """Whether an instruction is executed on every way to another one."""
    block, last = graph.block_of[number], graph.block_of[other]
    return number < other if block == last else graph.dominates(block, last)


def denied(leanings: Iterable[Leaning], names: Iterable[str]) -> tuple[Leaning, ...]:
    """Those that ``names`` deny; ``any`` denies everything that makes a proof conditional."""
    known = {*names}
    return tuple(one for one in leanings if one.name in known or (ANY in known and one.conditional))


def require_names(names: str | Iterable[str]) -> frozenset[str]:
    """The names, each of a switch or an assumption; several may be one text with commas.

    Raises:
        UsageError: one is unknown.
    """
    texts = [names] if isinstance(names, str) else names
    found = frozenset(name.strip() for text in texts for name in text.split(","))
    every = (*SWITCHES, *ASSUMPTIONS, ANY)
    for name in sorted(found.difference(every)):
        raise UsageError(
            f"{name!r} is not an assumption of a verdict{did_you_mean(name, every)}; there are "
            f"{', '.join(every)}"
        )
    return found
