"""Words of memory that only count: tensors, or single words, of which all accesses do.

The words of a tensor are counters if every access to them is a wait (`tilesim.ir.word_waits`), a
reduction by add, or a scalar store (or an exchange whose result is not used). Whether one run
proves what they order is for `tilesim.sim.machine.counter` to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.analysis.taint import (
    aliases,
    at_addresses,
    reached,
    tensors_read,
    tensors_written,
)
from tilesim.ir.effects import Effect, Reads, Writes
from tilesim.ir.expr import constant
from tilesim.ir.memory import Mbarriers
from tilesim.ir.mir import Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.scalars import WordAccess, word_access
from tilesim.ir.word_waits import INTEGERS, WordWait


def counters(mir: Mir, found: Mapping[int, WordWait]) -> frozenset[str]:
    """Integer tensors of which every access is a wait, an ``atom.add``, or a scalar store.

    Either no addition to a word uses what it finds there, or all of them do: they draw numbers.
    Where no thread waits, ``atom.inc`` draws them as well.
    """
    kernel = mir.kernel
    drawing = drawn_tensors(mir)
    polled = {w.poll.view.tensor.name for w in found.values()}
    names = {
        tensor.name
        for tensor in (*kernel.tensors, *kernel.shared)
        if not isinstance(tensor, Mbarriers) and tensor.dtype.kind in INTEGERS
    } & (polled | drawing)
    names -= {name for pair in (*aliases(kernel), *reached(mir)) for name in pair}
    names -= _of_several_sizes(mir)
    for number, effects in enumerate(mir.effects):
        touched = {n for e in effects for n in (*tensors_read(e), *tensors_written(e))} & names
        if touched and number not in found and not _counts(effects):
            names -= touched - (_incremented(effects) - polled)
    return frozenset(names)


def counting_words(
    mir: Mir, found: Mapping[int, WordWait], whole: frozenset[str]
) -> frozenset[int]:
    """Instructions that count at words of the CTA's own shared memory, of which other words hold
    other things: waits, additions and exchanges whose result is not used, scalar stores.

    Of tensors whose words all count (``whole``) `counters` says more. Empty if there is no wait for
    such a word, or allocations overlap.
    """
    if any(True for _ in aliases(mir.kernel)):
        return frozenset()

    def counted(access: WordAccess | None) -> bool:
        return (
            access is not None
            and access.element is None
            and access.view.space == "shared"
            and not access.view.remote
            and access.view.dtype.kind in INTEGERS
            and access.view.tensor.name not in whole
        )

    polls = {number for number, wait in found.items() if counted(wait.poll)}
    if not polls:
        return frozenset()
    written = (
        number
        for number, access in enumerate(map(word_access, mir.effects))
        if access is not None
        and counted(access)
        and (access.stores or (access.combine in ("add", "exch") and access.result is None))
    )
    return frozenset(polls.union(written))


def polls_memory(instruction: Instruction) -> bool:
    """Whether an instruction reads a word of global memory that others may change."""
    what = instruction.what
    access = word_access(what.effects()) if isinstance(what, Op) else None
    if access is None or access.result is None or access.view.space == "shared":
        return False
    if access.combine == "add" and access.value is not None and constant(access.value):
        return False  # a turn of the loop changes the word: no other thread needs to
    return access.sem != "weak"


def _of_several_sizes(mir: Mir) -> frozenset[str]:
    """Tensors with accesses at addresses, if not all accesses are to words of one size."""
    sizes: dict[str, set[int]] = {}
    for tensor in at_addresses(mir):
        sizes.setdefault(tensor.name, set()).add(tensor.dtype.bits)
    for effects in mir.effects:
        for effect in effects:
            if isinstance(effect, Reads | Writes) and effect.view.tensor.name in sizes:
                sizes[effect.view.tensor.name].add(effect.view.dtype.bits)
    return frozenset(name for name, found in sizes.items() if len(found) > 1)


def drawn_tensors(mir: Mir) -> frozenset[str]:
    """Tensors with an addition, or an increment up to a limit, whose result is used."""
    return frozenset(
        access.view.tensor.name
        for access in map(word_access, mir.effects)
        if access is not None and access.combine in ("add", "inc") and access.result is not None
    )


def only_drawn(mir: Mir, name: str) -> bool:
    """Whether the result of every addition to a tensor is used."""
    return not any(
        access is not None
        and access.combine is not None
        and access.result is None
        and access.view.tensor.name == name
        for access in map(word_access, mir.effects)
    )


def _counts(effects: tuple[Effect, ...]) -> bool:
    access = word_access(effects)
    if access is None:
        return False
    replaces = access.combine == "exch" and access.result is None
    return access.stores or replaces or access.combine == "add"


def _incremented(effects: tuple[Effect, ...]) -> set[str]:
    """The tensor of a word that is increased up to a limit, where what was found is used."""
    access = word_access(effects)
    draws = access is not None and access.combine == "inc" and access.result is not None
    return {access.view.tensor.name} if access is not None and draws else set()
