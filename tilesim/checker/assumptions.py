"""What a verdict leans on: switches that only `practice` grants, and what is taken for granted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from tilesim.errors import UsageError
from tilesim.ir.loc import Loc
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
    "H3": "a barrier hands on the fences of other threads",
    "H23": "threads store one number to one address, or copy the same there; lanes of a store, any",
    "H24": "a copy overwrites the word of tcgen05.alloc without a proxy fence",
    "U1": "an arrival although no wait has seen the phase before it complete",
    "U4": "an mbarrier hands over between CTAs of a cluster with scope .cta",
    "U12": "a copy overwrites what ordinary loads have read, without a proxy fence",
    "U14": "data of cp.async is read through the async proxy without a proxy fence",
    "U16": "an .aligned instruction is executed together by warps at different places",
    "U19": "tensor memory that a product reads is overwritten by a later operation in issue order",
    "U20": "tensor memory is handed on without the tcgen05 fences",
    "U21": "tcgen05.ld or st of a warpgroup with one address, without a quarter of the lanes",
    "U33": "tcgen05.ld is complete where all of its registers have been stored, without a wait",
}
#: F5: what one warp has waited for is taken to be over for the whole warpgroup
WARPGROUP_WAIT = "warpgroup-wait"
#: what proofs take for granted, by name
ASSUMPTIONS: Mapping[str, str] = {
    "program-order": "synchronising instructions of a warp act in program order",
    "registers": "how many registers a thread has at launch, which is not declared",
    "zero-state": "what memory holds at the start that the kernel changes and branches on: zeros",
    "in-bounds": "addresses that are taken from tensors which were not given are in bounds",
    "loops-end": "loops end whose turns are decided by data that was not given",
    "no-trap": "the kernel does not trap where data that was not given decides whether it does",
    "no-timeout": "no wait takes so long that the kernel gives it up and traps",
    "contents": "the contents of tensors that steer the kernel are those given",
    "float-order": "float reductions round as their order has it",
    "cluster-size": "the device launches clusters of more CTAs than are portable",
    "cluster-spread": "no two CTAs of a cluster share the tensor memory of one SM",
    WARPGROUP_WAIT: "wgmma.wait_group of one warp covers what its warpgroup issued",
    "device-size": "the GPU holds all CTAs of a cooperative launch at once",
    "earlier-grids": "grids before this one use nothing that it accesses before it waits for them",
    "dependents": "grids that start before this one has completed read nothing that it writes",
    "aliases": "memory with two addresses, one of multimem, has fence.proxy.alias between accesses",
    "launch-control": "what launch control grants",
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
            f"{name!r} is nothing that a verdict leans on{did_you_mean(name, every)}; known: "
            f"{', '.join(every)}"
        )
    return found
