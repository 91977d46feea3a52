"""Translation validation of one kernel of a cubin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.cubin.control import controls
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.sass import Function
from tilesim.cubin.wrong_forms import known_wrong_forms
from tilesim.errors import TilesimError
from tilesim.ptx.inline import Kernel, flatten
from tilesim.ptx.parser import read
from tilesim.ptx.syntax import PtxError
from tilesim.translation import (
    executions,
    forms,
    immediates,
    parts,
    retries,
    scoreboards,
)
from tilesim.translation.comparison import Comparison
from tilesim.translation.flow import ptx_nodes, reached
from tilesim.translation.pairing import events_of, pair_events
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.subject import copies
from tilesim.translation.validation import Difference, Undecided, Validation

_RELEASE = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")


class TranslationError(TilesimError, ValueError):
    """A kernel cannot be compared; the message says which, why, and what to do."""


def validate(image: Image, function: Symbol, ptx: str) -> Validation:
    """Compares the synchronisation of a kernel in PTX with that in the machine code.

    Args:
        image: a cubin compiled with ``-lineinfo``.
        function: one of `Image.functions`.
        ptx: the text it was compiled from; the one that the cubin embeds is `Image.ptx`.

    Raises:
        TranslationError: the cubin has no line table of the PTX, or the PTX not this kernel.
        CubinError: the cubin is damaged, or there is no nvdisasm.
    """
    comparison = Comparison(translate(image, function, ptx))
    translation = comparison.translation
    numbers = [*immediates.compare(translation, comparison.merged)]
    known = {(one.line, one.kind) for one in numbers}
    executed = executions.compare(translation)
    return Validation(
        function.name,
        image.arch,
        ptxas_version(image),
        comparison.instructions,
        tuple(comparison.inserted()),
        comparison.relations,
        (
            *comparison.differences(),
            *(one for one in numbers if isinstance(one, Difference)),
            *forms.compare(translation),
            *parts.compare(translation),
            *retries.compare(translation),
            *scoreboards.compare(comparison, controls(image, function)),
            *(o for o in executed.differences.values() if (o.line, o.kind) not in known),
        ),
        (
            *comparison.undecided(),
            *(one for one in numbers if isinstance(one, Undecided)),
            *_wrong_forms(translation),
        ),
        len(executed.compared),
        len(executed.unreached),
    )


def _wrong_forms(translation: Translation) -> Iterator[Undecided]:
    """The instructions that are known not to compute what the PTX says: whether synchronisation
    depends on their results is left open."""
    for wrong in known_wrong_forms(translation.sass):
        line = wrong.instruction.ptx or 0
        yield Undecided("known wrong form", line, translation.text(line), wrong.sentence)


def translate(image: Image, function: Symbol, ptx: str) -> Translation:
    """A kernel in PTX and SASS, with the pairs of instructions; as `validate`, which raises the
    same."""
    if image.section(".nv_debug_line_sass") is None:
        raise TranslationError(
            f"{image.name}: it has no line table of its PTX, by which SASS is compared with it; "
            "compile with -lineinfo"
        )
    try:
        module = read(ptx, f"{image.name} (PTX)")
        entry = next((one for one in module.entries if one.name == function.name), None)
        if entry is None:
            raise TranslationError(f"{image.name}: the PTX has no kernel {function.name}")
        kernel = flatten(module, entry)
    except PtxError as error:
        raise TranslationError(f"{image.name}: its PTX cannot be read: {error}") from error
    (code,) = disassemble(image, (function,))
    return paired(image, function, kernel, code, ptx)


def paired(image: Image, symbol: Symbol, kernel: Kernel, code: Function, ptx: str) -> Translation:
    """Both texts of a kernel with the pairs of their instructions."""
    lines = tuple(ptx.split("\n"))
    events = events_of(kernel, reached(ptx_nodes(kernel)))
    by_event = copies(code.code, pair_events(events, kernel, code, lines))
    pairs = [
        Pair(number, kernel.code[number], event[1], by_event.get(event, ()))
        for event, numbers in events.items()
        for number in numbers
    ]
    pairs.sort(key=lambda one: one.number)
    return Translation(image, symbol, kernel, code, tuple(pairs), lines)


def ptxas_version(image: Image) -> str | None:
    """The version of ptxas that made a cubin, as ``13.0.88``, or ``12.9`` where it says no more;
    None if it says nothing."""
    section = image.section(".note.nv.tkinfo")
    found = _RELEASE.search(image.contents(section)) if section else None
    if found:
        return found[1].decode()
    return next((one for f in image.functions if (one := image.info(f).toolkit)), None)
