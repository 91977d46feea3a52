"""What is known of a program that a machine has loaded.

`Allocations` says what the program declares in shared memory, by address.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.taint import Dataflow
from tilesim.arith.byte_set import ByteSet
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.expr import Expr
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.records import dataclass, field

if TYPE_CHECKING:  # what only PTX needs
    from tilesim.findings.source_names import Struct


@dataclass(frozen=True)
class Allocations:
    """What a program declares in shared memory, by byte: (first, one past the last, name)."""

    spans: tuple[tuple[int, int, str], ...] = ()
    barriers: frozenset[str] = frozenset()
    #: file and line of a place in the kernel, of PTX with lines of a source
    source: tuple[str, int] | None = None

    @staticmethod
    def of(program: Program, source: tuple[str, int] | None = None) -> Allocations:
        """Those of a program, in order."""
        spans = [(program.placement[s.name], s.nbytes, s.name) for s in program.shared]
        return Allocations(
            tuple(sorted((low, low + nbytes, name) for low, nbytes, name in spans)),
            frozenset(s.name for s in program.shared if isinstance(s, Mbarriers)),
            source,
        )

    @cached_property
    def bytes(self) -> ByteSet:
        """All that are declared."""
        return ByteSet.union(ByteSet.interval(low, high) for low, high, _ in self.spans)

    def at(self, address: int) -> tuple[int, str] | None:
        """Where the allocation begins that holds a byte, and its name: the smallest one, if several
        do."""
        number = bisect_right(self.spans, (address + 1,))
        holding = [s for s in self.spans[:number] if address < s[1]]
        best = min(holding, key=lambda s: s[1] - s[0], default=None)
        return None if best is None else (best[0], best[2])

    def size(self, address: int) -> int:
        """Bytes of the allocation that `at` finds there; 0: none."""
        at = self.at(address)
        return max((high - low for low, high, name in self.spans if (low, name) == at), default=0)

    def name(self, address: int) -> str:
        """What findings call a byte: ``buffer+64``."""
        found = self.at(address)
        if found is None:
            return f"byte {address}"
        start, name = found
        slot = self.slot(address)
        return f"{name}+{address - start}" if slot is None else f"{name}[{slot}]"

    def written(self, address: int) -> str:
        """The same as the source has it, where a struct is in the allocation: ``s.data[1]``."""
        start, name = self.at(address) or (0, "")
        struct = self._structs.get(name)
        return (struct and struct.called(address - start)) or self.name(address)

    @cached_property
    def _structs(self) -> dict[str, Struct]:
        """By allocation, the struct that the source says is in it."""
        if self.source is None:
            return {}
        from tilesim.findings.source_names import struct_in  # what only PTX needs

        found = {name: struct_in(self.source, name, high - low) for low, high, name in self.spans}
        return {name: struct for name, struct in found.items() if struct is not None}

    def slot(self, address: int) -> int | None:
        """The place in its array of a barrier that is declared; None if it is none."""
        start, name = self.at(address) or (0, "")
        is_one = name in self.barriers and not (address - start) % 8
        return (address - start) // 8 if is_one else None

    def nearest(self, address: int) -> str:
        """The allocation that is next to a byte outside of all, and where it is."""
        low, high, name = min(
            self.spans, key=lambda s: s[0] - address if address < s[0] else address - s[1] + 1
        )
        return f"{name} is at {low:#x}..{high - 1:#x}"


# ------------------------------------------------------------------ what is known of a program


@dataclass(frozen=True)
class Leaf:
    """A register in an operand: its ``slot``, or a ``special`` one, which has no name. ``held``:
    what the register holds, if the program computes it."""

    slot: int = -1
    special: bool = False
    held: Operand | None = None


@dataclass(frozen=True)
class Operand:
    """What tells what an operand is: its value, if the program computes it (``evaluate``), else
    what it is made of (``leaves``). ``of_grid``: it may differ between clusters by itself."""

    evaluate: Callable[[Any], Any] | None
    leaves: tuple[Leaf, ...]
    of_grid: bool = False

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """The registers in it."""
        return tuple(leaf.slot for leaf in self.leaves if leaf.slot >= 0)


@dataclass(frozen=True)
class Drained:
    """Where all is stored that tcgen05.ld has loaded on every way since the last wait for it.

    Numbers of instructions: behind those of ``stored`` it has been stored, by tcgen05.st up to a
    ``tcgen05.wait::st``. Behind those of ``given`` comes a tcgen05.st of what is made of all
    registers of these loads.
    """

    stored: frozenset[int] = frozenset()
    given: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Facts:
    """What is known of a loaded program; ``origins``: the instruction or location of each step."""

    graph: FlowGraph
    flow: Dataflow
    origins: list[Op | Loc] = field(default_factory=list)
    #: by number, which lanes of a warp go on first (`tilesim.analysis.cfg.FlowGraph.ranks`)
    ranks: list[int] = field(default_factory=list)
    #: numbers of instructions that set registers which decide nothing, where data is not computed
    idle: set[int] = field(default_factory=set)
    slots: dict[str, int] = field(default_factory=dict)
    #: registers that an assignment sets in all lanes (`tilesim.analysis.uniformity`)
    private: frozenset[int] = frozenset()
    #: registers that may hold the quotient of a division by zero
    open_registers: frozenset[int] = frozenset()
    #: registers that are used on a path on which nothing sets them, as where a guard holds in no
    #: lane of a warp
    may_be_unset: frozenset[str] = frozenset()
    #: the addresses of declarations
    bases: dict[str, int] = field(default_factory=dict)
    #: what depends on where memory begins, a sentence each
    decided_by_bases: tuple[str, ...] = ()
    #: by number of a shuffle the lanes that hold an address, where others hold none
    lanes_asked: Mapping[int, int] = field(default_factory=dict)
    #: by number what has to hold where an instruction is executed, or a base decides there, too
    stays: Mapping[int, Expr] = field(default_factory=dict)
    #: by number what writes addresses of several things, or others in place of some
    mixed: frozenset[int] = frozenset()
    allocations: Allocations = field(default_factory=Allocations)
    #: bytes of each global tensor
    sizes: dict[str, int] = field(default_factory=dict)
    #: no access to global memory is at an address that a register holds
    global_by_name: bool = True
    #: whether loops wait for words of global memory
    polls_memory: bool = False
    group_kinds: tuple[str, ...] = ()
    #: which warps of a CTA can reach instructions that use which of them
    group_warps: frozenset[tuple[int, str]] = frozenset()
    #: how many sets of their lanes may issue operations of which of them
    issuers: dict[tuple[int, str], int] = field(default_factory=dict)
    mbarrier_addresses: tuple[int, ...] = ()
    #: how many more mbarriers instructions make at addresses, at most
    spare_mbarriers: int = 0
    #: those addresses in the order in which they were first met, in whatever run
    adopted: dict[int, int] = field(default_factory=dict)
    #: by the place of an initialisation in PTX and the number of an mbarrier there: its name
    written: dict[tuple[tuple[tuple[str, int], ...], int], str | None] = field(default_factory=dict)
    #: the numbers of the named barriers that a CTA may use
    named_barriers: tuple[int, ...] = ()
    #: by number, in brackets the constant of the source that is it
    constants_of_barriers: dict[int, str] = field(default_factory=dict)
    uses_cluster: bool = False
    #: warps of a CTA that can reach a fence.mbarrier_init
    fence_inits: frozenset[int] = frozenset()
    uses_remote_stores: bool = False
    #: warps of a CTA that can reach an asynchronous access of lanes to global memory (D14)
    async_accesses: frozenset[int] = frozenset()
    #: copies complete bytes of mbarriers
    tracks_loads: bool = False
    uses_tcgen05: bool = False
    #: where what tcgen05.ld has loaded has been stored
    drained: Drained = field(default_factory=Drained)
    has_loose_credits: bool = False
    #: arrivals on mbarriers that wait for copies of the threads which make them (C6)
    tracks_copies: bool = False
    #: lanes store to memory that lanes access, each at an address of its own
    exchanges: bool = False
    #: instructions that leave bytes which are not to be read
    losing: frozenset[int] = frozenset()
    #: a proxy fence for the executing CTA's shared memory leaves out some that is accessed (H9)
    fences_own: bool = False
    #: fences that have one order
    fences_sc: bool = False
    #: shared allocations that overlap, where the contents of one of them may steer
    overlaid: frozenset[str] = frozenset()
    #: tensors of which every thread has a part of its own
    of_threads: frozenset[str] = frozenset()
    #: where tcgen05.alloc puts addresses
    alloc_slots: frozenset[str] = frozenset()
    #: some of what it works on is not known (`tilesim.sim.machine.unknown`)
    forgets: bool = False
    #: what threads leave for each other in memory may be looked at (`tilesim.sim.machine.havoc`)
    words_are_observed: bool = True
    #: what an acquire learns may be up to which CTA has released it (H1)
    asks_for_senders: bool = True
    #: whatever it does, and all that tells others of that, is of the generic proxy
    is_generic: bool = False
    #: fences for shared memory alone (H18)
    fences_in_shared: bool = False
    #: relaxed operations may bring what counts for tensor memory behind a tcgen05.fence
    fences_tensor: bool = False
    #: warps whose fences act for relaxed operations (H3)
    fencing: frozenset[int] = frozenset()
    #: strong stores that release nothing, but what their thread has released there before (H3)
    stores_relaxed: bool = False
    #: how many elements vectors have at most that release (H15)
    elements: int = 0
    #: tensors that copies take tensor maps from
    map_tensors: frozenset[str] = frozenset()
    #: tensors that instructions access by the async proxy
    async_tensors: frozenset[str] = frozenset()
    #: by warp, into how many parts its lanes may fall; empty if all warps always act as one
    parts: dict[int, int] = field(default_factory=dict)
    #: tensors whose words only count (`tilesim.sim.observers.monotone_words`)
    counters: frozenset[str] = frozenset()
    #: instructions that count at words of shared memory whose other words do something else
    counting: frozenset[int] = frozenset()
    #: by number, what stores that would race store, where that is looked at
    named: dict[int, tuple[Operand, ...]] = field(default_factory=dict)

    #: by number, which instruction of the user's program it is, where there are two copies of that
    #: (`tilesim.transforms.rewrite`)
    places: tuple[int, ...] = ()

    def place(self, op: Op) -> int:
        """The number of an instruction in the user's program, -1 if it has none."""
        return self.places[op.number] if self.places and op.number >= 0 else op.number

    def twin(self, number: int) -> int:
        """The same instruction in the first copy of the user's program, if there are two."""
        return number % (len(self.places) // 2) if self.places else number

    def copies(self, number: int) -> tuple[int, ...]:
        """The same instruction in every copy of the user's program."""
        size, first = len(self.places) // 2, self.twin(number)
        return (first, first + size) if self.places else (first,)

    @property
    def mir(self) -> Mir:
        """The program."""
        return self.graph.mir

    def role_of(self, op: Op) -> str:
        """The role whose region an instruction is in; empty outside of all."""
        return self.mir.code[op.number].role if op.number >= 0 else ""
