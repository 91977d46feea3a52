"""Registers that are parts of the tiles of wgmma.

A compiler moves accumulators from registers to registers, and the assembler leaves these moves out
where it can: registers that a move connects are one, unless they hold different values at the same
time. What a tile's registers hold is not known; one variable stands for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tilesim.ptx.constants import Constants, naming, operands_named, registers, set_by
from tilesim.ptx.inline import Items, Kernel, Register, Step
from tilesim.ptx.liveness import Interference, entered
from tilesim.ptx.syntax import Float, Integer


class _Classes:
    """Names that are one; a class goes by one of them."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    @property
    def names(self) -> Collection[str]:
        """The names that are one with another."""
        return self._above.keys() | {*self._above.values()}

    def root(self, name: str) -> str:
        """The name of the class."""
        path = []
        while name in self._above:
            path.append(name)
            name = self._above[name]
        for passed in path:
            self._above[passed] = name
        return name

    def join(self, a: str, b: str) -> None:
        """Makes two classes one, which goes by the first one's name."""
        first, second = self.root(a), self.root(b)
        if first != second:
            self._above[second] = first


class Tiles:
    """Which registers of a kernel belong to one tile."""

    def __init__(self, kernel: Kernel, constants: Constants) -> None:
        self._constants = constants
        tiles = dict.fromkeys(
            tuple([register.name for register in registers(operand)])
            for step in kernel.code
            if step.base == "wgmma"
            for operand in step.operands[:2]
            if isinstance(operand, Items)
        )
        copies = [step for step in kernel.code if step.base == "mov"]
        moves = [pair for step in copies if (pair := self._moved(step)) is not None]
        #: registers that the assembler makes one, and the tiles that those of a wgmma form
        self._registers, self._together = _Classes(), _Classes()
        self._coalesce(kernel, moves, {name for tile in tiles for name in tile})
        for tile in tiles:
            for name in tile:
                self._together.join(self._registers.root(tile[0]), self._registers.root(name))
        orders: dict[str, set[tuple[str, ...]]] = {}
        for tile in tiles:
            order = tuple(map(self._registers.root, tile))
            orders.setdefault(self._tile(tile[0]), set()).add(order)
        #: tiles of which products name the registers in several orders, or one of them twice
        self.mixed = {
            root for root, found in orders.items()
            if len(found) > 1 or any(len(set(order)) < len(order) for order in found)
        }  # fmt: skip
        roots = {self._tile(name) for tile in tiles for name in tile}
        names = {*self._registers.names, *self._together.names}.union(*tiles)
        #: by register, the tile that it is part of
        self._of = {name: root for name in names if (root := self._tile(name)) in roots}
        #: the instructions that name such registers
        self.numbers = frozenset[int]().union(*map(naming(kernel).numbers.__getitem__, self._of))
        self._moved_out = dict(self._numbers_moved_out(kernel))

    def _coalesce(self, kernel: Kernel, moves: Sequence[tuple[str, str]], parts: set[str]) -> None:
        """Joins the registers that moves connect with ``parts`` of tiles and that can be one."""
        connected = _Classes()
        for target, source in moves:
            connected.join(target, source)
        roots = {connected.root(name) for name in parts}
        moves = [pair for pair in moves if connected.root(pair[0]) in roots]
        if not moves:
            return
        names = sorted(parts | {name for pair in moves for name in pair})
        interference = Interference(kernel, names)
        members, differs = dict(interference.bit), dict(interference.of)
        for target, source in moves:
            a, b = self._registers.root(target), self._registers.root(source)
            if a != b and not (differs[a] & members[b] or differs[b] & members[a]):
                self._registers.join(a, b)
                members[a] |= members[b]
                differs[a] |= differs[b]

    def _numbers_moved_out(self, kernel: Kernel) -> Iterator[tuple[int, Step]]:
        """The moves of a number out of a register of a tile, to which a move has set that before,
        in the same straight line: each as a move of the number."""
        held: dict[str, Integer] = {}
        places = entered(kernel)
        for number, step in enumerate(kernel.code):
            held = {} if number in places else held
            target, found = self._moved_number(step, held)
            if found is not None and self.of(target) is None and found is not step.operands[1]:
                yield number, step.as_if(step.opcode, (step.operands[0], found))
            for register in set_by(step):
                held.pop(register.name, None)
            if found is not None and self.of(target) is not None:
                held[target] = found

    def _moved_number(self, step: Step, held: Mapping[str, Integer]) -> tuple[str, Integer | None]:
        """Which register a move sets to a number, with what registers hold."""
        if step.base == "mov" and step.guard is None and len(step.operands) == 2:
            target, source = step.operands
            if isinstance(target, Register) and isinstance(source, Integer):
                return target.name, source
            if isinstance(target, Register) and isinstance(source, Register):
                return target.name, held.get(source.name)
        return "", None

    def _tile(self, name: str) -> str:
        return self._together.root(self._registers.root(name))

    def of(self, name: str) -> str | None:
        """A name of the tile that a register belongs to; None: it is part of none."""
        return self._of.get(name)

    def with_number(self, number: int, step: Step) -> Step:
        """An instruction of the kernel, which moves a number itself if the register of a tile that
        it moves is known to hold that: what registers of tiles hold is not kept track of."""
        return self._moved_out.get(number, step)

    def stands_for(self, name: str, kind: str) -> tuple[str, str]:
        """The register that stands for this one, and its type."""
        tile = self.of(name)
        return (name, kind) if tile is None else (f"{tile}:", "b32")

    def accessed(self, step: Step) -> Iterator[tuple[str, bool]]:
        """The tiles of which an instruction accesses registers, and whether it writes them."""
        if step.opcode.startswith("wgmma.mma_async") or self.renamed(step):
            return
        written = {register.name for register in set_by(step)}
        found: dict[tuple[str, bool], None] = {}
        for position, names in enumerate(operands_named(step)):
            for register in names:
                tile = self.of(register.name)
                if tile is not None:
                    found[tile, position == 0 and register.name in written] = None
        yield from found

    def renamed(self, step: Step) -> bool:
        """Whether an instruction only moves registers of a tile, which the assembler leaves out."""
        pair = self._moved(step)
        if pair is None or self.of(pair[0]) is None:
            return False
        return self._registers.root(pair[0]) == self._registers.root(pair[1])

    def moves(self, step: Step) -> bool:
        """Whether an instruction moves a constant or a register into a register of a tile."""
        if step.base != "mov" or step.guard is not None or len(step.operands) != 2:
            return False
        target, source = step.operands
        return (
            isinstance(target, Register) and self.of(target.name) is not None
            and isinstance(source, Register | Integer | Float)
        )  # fmt: skip

    def _moved(self, step: Step) -> tuple[str, str] | None:
        """The registers between which an instruction moves what is no constant."""
        if step.base != "mov" or step.guard is not None or len(step.operands) != 2:
            return None
        target, source = step.operands
        if not isinstance(target, Register) or not isinstance(source, Register):
            return None
        return None if self._constants.number(source) is not None else (target.name, source.name)
