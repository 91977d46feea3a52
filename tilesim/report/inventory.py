"""The inventory of a kernel's machine code as text and as JSON; it says of itself that it is none
of a proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tilesim.cubin.inventory import Answer, Compared, Inventory, MbarrierRow, Site
from tilesim.layout import PLAIN, Style, field
from tilesim.ptx.demangle import readable
from tilesim.wording import count, numbered, printable

#: of the JSON document
SCHEMA: Final = 1
#: what stands at the head of each
NOTE = "an inventory of machine code, which proves nothing"

#: answers, with the word for many of them
_ANSWERS: dict[Answer, str] = {"agrees": "agree", "differs": "differ", "not known": "not known"}
_COLOURS: dict[Answer, str] = {"agrees": "proved", "differs": "failed", "not known": "bounded"}
#: what the number of a site is
_UNITS = {
    "init": "of {}", "wait": "for parity {}", "arrive n": "of {}", "bar.sync": "of {} threads",
    "bar.arrive": "of {} threads", "bar.red": "of {} threads",
}  # fmt: skip
#: those of which there is none, or it is not in the code
_WITHOUT = frozenset({
    "arrive", "arrive_drop", "tcgen05.commit", "tensor copy", "inval", "cp.async.mbarrier.arrive",
    "cp.async.mbarrier.arrive.noinc",
})  # fmt: skip


def to_text(inventory: Inventory, place: str, style: Style = PLAIN) -> str:
    """The inventory of the kernel at a place, which is its file and name."""
    return "\n".join(_lines(inventory, place, style)) + "\n"


def _lines(found: Inventory, place: str, style: Style) -> Iterator[str]:
    yield f"{style.bold('INVENTORY')} {printable(place)}"
    answers = Counter(one.answer for one in found.compared)
    summary = ", ".join(f"{answers[one]} {many}" for one, many in _ANSWERS.items())
    yield from field("", f"{NOTE}; numbers compared: {summary}", style, indent=2)
    yield from field("kernel", ", ".join(_sizes(found)), style, indent=2)
    for row in found.mbarriers:
        said = f"{_places(row)}: {_said(row.arrivals, style)}"
        yield from field("mbarrier", said, style, indent=2)
        if row.bytes is not None:
            yield from field("bytes", _said(row.bytes, style), style)
        yield from _sites(row.sites, style)
    for named in found.named_barriers:
        said = f"{named.number}: {_said(named.count, style)}"
        yield from field("barrier", said, style, indent=2)
        yield from _sites(named.sites, style)
    if found.register_pool is not None:
        yield from field("registers", _said(found.register_pool, style), style, indent=2)
        for one in found.register_sites:
            number = "?" if one.registers is None else one.registers
            warps = f", {numbered('warp', one.warps)}" if one.warps else ""
            yield from field("", f"setmaxnreg {number}{warps}, {one.pc:#x}", style)
    for sites, what in ((found.unplaced, "mbarrier"), (found.unnumbered, "named barrier")):
        if sites:
            yield from field("unknown", f"the {what} of", style, indent=2)
            yield from _sites(sites, style)
    for why in found.unknown:
        yield from field("unknown", why, style, indent=2)


def _sizes(found: Inventory) -> Iterator[str]:
    info = found.info
    yield found.arch
    if found.block is not None:
        most = "" if info.block is not None else "at most "
        size = found.block if found.block[1:] != (1, 1) else found.block[:1]
        yield f"blocks of {most}{'x'.join(map(str, size))} threads"
    if info.cluster is not None:
        yield f"clusters of {'x'.join(map(str, info.cluster))} CTAs"
    if info.registers is not None:
        yield f"{count(info.registers, 'register')} a thread"
    yield f"{count(sum(one.size for one in info.parameters), 'byte')} of parameters"


def _places(row: MbarrierRow) -> str:
    if len(row.places) == 1:
        return f"{row.places[0]:#x}"
    return f"{row.places[0]:#x} to {row.places[-1]:#x}, {len(row.places)} of them"


def _said(found: Compared, style: Style) -> str:
    return f"{style.paint(found.answer, _COLOURS[found.answer])}: {found.why}"


def _sites(sites: Iterable[Site], style: Style) -> Iterator[str]:
    """What is done, each once, with the places at which it is."""
    of: dict[str, list[int]] = {}
    for one in sites:
        known = "?" if one.amount is None else str(one.amount)
        what = one.kind
        if one.kind not in _WITHOUT:
            what += " " + _UNITS.get(one.kind, "of {} bytes").format(known)
        if one.remote:
            what += ", which may be of another CTA"
        warps = one.warps()
        of.setdefault(what + (f", {numbered('warp', warps)}" if warps else ""), []).append(one.pc)
    for what, pcs in of.items():
        more = f" and {len(pcs) - 1} more" if len(pcs) > 1 else ""
        yield from field("", f"{what}, {pcs[0]:#x}{more}", style)


def to_json(inventory: Inventory, file: str) -> dict[str, object]:
    """The same as a document; ``schema`` is its version. Places and addresses are numbers."""
    info = inventory.info
    return {
        "schema": SCHEMA,
        "kind": "inventory",
        "note": NOTE,
        "file": file,
        "kernel": inventory.kernel,
        "readable": readable(inventory.kernel),
        "arch": inventory.arch,
        "block": info.block,
        "most_threads": info.most_threads,
        "cluster": info.cluster,
        "registers": info.registers,
        "parameters": [[one.offset, one.size] for one in info.parameters],
        "mbarriers": [
            {
                "addresses": row.places,
                "expects": row.expected,
                "arrivals": _compared(row.arrivals),
                "bytes": _compared(row.bytes),
                "sites": [_site(one) for one in row.sites],
            }
            for row in inventory.mbarriers
        ],
        "unplaced": [_site(one) for one in inventory.unplaced],
        "named_barriers": [
            {
                "number": row.number,
                "count": _compared(row.count),
                "sites": [_site(one) for one in row.sites],
            }
            for row in inventory.named_barriers
        ],
        "unnumbered": [_site(one) for one in inventory.unnumbered],
        "setmaxnreg": [
            {"pc": one.pc, "registers": one.registers, "warps": one.warps}
            for one in inventory.register_sites
        ],
        "register_pool": _compared(inventory.register_pool),
        "unknown": inventory.unknown,
    }


def _compared(found: Compared | None) -> dict[str, str] | None:
    return None if found is None else {"answer": found.answer, "why": found.why}


def _site(site: Site) -> dict[str, object]:
    return {
        "pc": site.pc,
        "instruction": site.instruction,
        "kind": site.kind,
        "places": site.places,
        "number": site.amount,
        "remote": site.remote,
        "warps": site.warps(),
    }
