"""Modifiers of SASS opcodes: a copy of a PTX instruction does what its qualifiers ask for.

A row of `FORMS` says of a kind of instructions: where the PTX opcode has this, the SASS opcode has
that, and, unless the row is ``implied`` only, not otherwise. What no row speaks of, as hints and
types of values, is not compared. The modifiers are those of ptxas 12.9 to 13.5 on a kernel for
each qualifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.cubin.sass import Instruction
from tilesim.records import dataclass
from tilesim.translation import classes
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.validation import Difference


@dataclass(frozen=True)
class Form:
    """``ptx`` and ``sass`` are searched for in opcodes, ``of`` in SASS: of which the row speaks.
    ``implied``: the SASS may have it where the PTX has not, as it then does more."""

    ptx: re.Pattern[str]
    sass: re.Pattern[str]
    of: re.Pattern[str]
    implied: bool


def _form(ptx: str, sass: str, of: str = "", *, implied: bool = False) -> Form:
    return Form(re.compile(ptx), re.compile(sass), re.compile(of), implied)


_GPU, _SYS = r"\.(?:GPU|SYS)\b", r"\.SYS\b"
#: memory of the CTA's own has no scope in SASS
_SHARED = r"(?!\S*shared(?!::cluster))"
_OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
_TWO_CTAS = _form(r"cta_group::2", r"\.2CTA\b")
_DIMENSIONS = tuple(_form(rf"\.tensor\.{n}d\b", rf"\.{n}D\b") for n in range(1, 6))
_REDUCTIONS = tuple(_form(rf"\.{one}\b", rf"\.{one.upper()}\b", "RED") for one in _OPERATIONS)
_STRONG = (
    _form(rf"\.(?:gpu|cluster|sys)\b{_SHARED}", rf"\.STRONG{_GPU}", implied=True),
    _form(rf"\.sys\b{_SHARED}|\.(?:volatile|mmio)\.\S*global", rf"\.STRONG{_SYS}", implied=True),
)
_STRONG_ASYNC = (
    _form(r"\.(?:gpu|sys)\.global", rf"\.STRONG{_GPU}", implied=True),
    _form(r"\.sys\.global", rf"\.STRONG{_SYS}", implied=True),
)
_ATOMIC = (
    *_STRONG,
    _form(
        r"^(?:atom|red)\.global\.(?!cta\.)", rf"\.STRONG{_GPU}", implied=True
    ),  # the scope not written
    # of half-precision numbers ptxas makes a loop of ``cas``
    *(_form(rf"\.{one}\b(?!\S*f16)", rf"\.{one.upper()}\b", implied=True) for one in _OPERATIONS),
)
_TENSOR_MEMORY = (
    *(_form(rf"\.x{n}\b", rf"\.x{n}\b") for n in (2, 4, 8, 16, 32, 64, 128)),
    *(_form(rf"\.16x{n}b\b", rf"\.16dp{n}bit\b") for n in (64, 128, 256)),
    _form(r"\.16x32bx2\b", r"\.16dp32bit_t"),
    _form(r"\.(?:un)?pack::16b", r"\.(?:PACK|EXPAND)16BIT\b"),
)
_FENCE = (
    _form(r"\.(?:gpu|cluster|gl)\b", _GPU, implied=True),
    _form(r"\.sys\b", _SYS, implied=True),
    _form(r"fence\.sc\b|membar|fence\.proxy\.alias", r"\.SC\b", implied=True),
)

FORMS = {
    "mbarrier.arrive": (
        _form(r"arrive_drop", r"\.OPTOUT\b"),
        _form(r"^mbarrier\.arrive(?:_drop)?\b(?!\S*expect_tx)", r"\.A(?:1|R)T0\b", "SYNCS"),
        _form(r"^mbarrier\.complete_tx", r"\.A0TX\b"),
        _form(r"^mbarrier\.expect_tx|^cp\.async", r"\.A0T[R1]\b", "SYNCS"),
        _form(r"shared::cluster", r"\.RED\b", "SYNCS", implied=True),
        _form(r"\.noinc\b", r"\.ARVCNT\b", "ARRIVES"),
    ),
    "bulk.load": (
        _form(r"\.multicast::cluster", r"\.MULTICAST\b"),
        _form(r"\.tensor\.", r"UTMALDG"),
        _form(r"\.im2col\b(?!::w)", r"\.IM2COL\b"),
        _form(r"\.im2col::w\b(?!::128)", r"\.W\b"),
        _form(r"\.im2col::w::128", r"\.W128\b"),
        _form(r"::gather4", r"\.GATHER4\b"),
        _TWO_CTAS, *_DIMENSIONS,
    ),
    "bulk.store": (
        _form(r"\.tensor\.", r"UTMA"),
        _form(r"cp\.reduce", r"UTMAREDG|UBLKRED"),
        _form(r"\.im2col_no_offs\b", r"\.IM2COL\b"),
        _form(r"::scatter4", r"\.SCATTER4\b"),
        *_DIMENSIONS, *_REDUCTIONS,
    ),
    "bulk.reduce": _REDUCTIONS,
    "tcgen05.mma": (
        _TWO_CTAS,
        _form(r"\.ws\b", r"\.WS\b"),
        _form(r"kind::(?:f16|tf32)\b", r"UTCH"),
        _form(r"kind::(?:mx)?f8f6f4\b", r"UTCQ"),
        _form(r"kind::mxf4", r"UTCO"),
        _form(r"kind::i8\b", r"UTCI"),
    ),
    "tcgen05.commit": (_TWO_CTAS, _form(r"\.multicast::cluster", r"\.MULTICAST\b")),
    "tcgen05.cp": (_TWO_CTAS,),
    "tcgen05.shift": (_TWO_CTAS,),
    "tcgen05.ld": _TENSOR_MEMORY,
    "tcgen05.st": _TENSOR_MEMORY,
    "bar": (
        _form(r"\.red\b", r"BAR\.RED\b"),
        *(_form(rf"\.{one}\b", rf"\.{one.upper()}\b") for one in ("popc", "and", "or")),
    ),
    "fence": _FENCE,
    "fence.proxy.alias": _FENCE,
    "fence.proxy.tensormap": (
        _form(r"::generic\.acquire", "UTMACCTL"),
        _form(r"\.(?:gpu|cluster)\b", _GPU, "MEMBAR", implied=True),
        _form(r"\.sys\b", _SYS, "MEMBAR", implied=True),
    ),
    "fence.proxy.async": (_form(r"\.async\.global", r"\.G\b"),),
    "setmaxnreg": (_form(r"\.inc\b", r"\.TRY_ALLOC\b"), _form(r"\.dec\b", r"\.DEALLOC\b")),
    "clusterlaunchcontrol": (_form(r"\.multicast::cluster", r"\.BROADCAST\b"),),
    "st.async": (*_STRONG_ASYNC, *_REDUCTIONS),
    "ld.acquire": _STRONG, "st.release": _STRONG,
    "atom.acq_rel": _ATOMIC, "atom.acquire": _ATOMIC, "atom.release": _ATOMIC, "atom": _ATOMIC,
    "ld.shared": _STRONG, "st.shared": _STRONG, "ld.global": _STRONG, "st.global": _STRONG,
    "ld.generic": _STRONG, "st.generic": _STRONG,
}  # fmt: skip


def compare(translation: Translation) -> Iterator[Difference]:
    """Copies that do something else than their PTX instructions."""
    events: dict[tuple[int, str], list[Pair]] = {}
    for pair in translation.pairs:
        events.setdefault((pair.step.place.line, pair.kind), []).append(pair)
    for same in events.values():
        for copy in same[0].copies:
            # of several instructions on one line it is a copy of one
            differences = [_differs(one.kind, one.step.opcode, copy.opcode) for one in same]
            if all(differences):
                yield _difference(translation, same[0], copy, differences[0])


def _differs(kind: str, ptx: str, sass: str) -> str:
    """What one of two opcodes has and the other has not; empty if they agree."""
    for form in FORMS.get(kind, ()):
        if not form.of.search(sass):
            continue
        wanted, found = form.ptx.search(ptx), form.sass.search(sass)
        if wanted and not found:
            return f"asks for {wanted[0].strip('.:')}, which {sass} does not do"
        if found and not wanted and not form.implied:
            return f"does not ask for {found[0].strip('.')}, which {sass} does"
    return ""


def _difference(
    translation: Translation, pair: Pair, copy: Instruction, what: str
) -> Difference:  # fmt: skip
    line = pair.step.place.line
    return Difference(
        kind="form",
        rule=f"PTX {classes.BY_NAME[pair.kind].section}",
        effect="weaker",
        line=line,
        text=translation.text(line),
        sentence=f"PTX line {line} ({pair.kind}) {what} (at {copy.pc:#x})",
        pc=copy.pc,
        sass=str(copy),
        source=copy.lines[0] if copy.lines else None,
    )
