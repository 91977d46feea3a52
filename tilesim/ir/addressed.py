"""What lies at an address in a register: memory and mbarriers that nothing declares."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from tilesim.arith.types import DType
from tilesim.ir import layout
from tilesim.ir.expr import Expr
from tilesim.records import dataclass, field

#: how the names of parts of shared memory that are told apart begin
#: (`tilesim.analysis.pointer_table`)
PART = ".shared+"

#: what an address is into, as PTX's state spaces are called
Space = Literal["shared::cta", "shared::cluster", "global", "generic"]


@dataclass(frozen=True)
class AddressedTensor:
    """What lies at the byte ``address`` in a state space, which may differ between lanes.

    Which allocation it is in is known when it is accessed. Row-major unless ``strides`` (in
    elements) are given; ``swizzle`` in bytes, as for `SharedTensor`. See
    `tilesim.ir.addresses.view_at`. ``within``: the global tensor of which the address was made
    (`tilesim.analysis.pointer_table.located`) or the part of shared memory that it is in, where
    that is known. ``among``: the global tensors of which it may have been made, empty if that is
    not known. ``multiple``: if not 0, it is an element of a vector that begins at a multiple of so
    many bytes, ``beyond`` before the address; ``undivided``: it is a piece of what one access of so
    many bytes accesses (``ld.b128``).
    """

    address: Expr
    dtype: DType
    shape: tuple[int, ...] = ()
    space: Space = "shared::cta"
    strides: tuple[int, ...] | None = None
    swizzle: layout.Swizzle = 0
    multiple: int = 0
    beyond: int = 0
    undivided: bool = False
    within: str = field(default="", compare=False, repr=False)
    among: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        """The tensor that it is in; if that is not known, one name for all of a state space, which
        nothing declares."""
        return self.within or f".{self.space}"

    @cached_property
    def byte_strides(self) -> tuple[int, ...]:
        """Distance in bytes between neighbours along each dimension, before the swizzle."""
        if self.strides is not None:
            return tuple(s * self.dtype.bytes for s in self.strides)
        if not self.shape:
            return ()
        pitch = layout.row_pitch(self.shape, self.dtype.bits, self.swizzle, None)
        return layout.byte_strides(self.shape, self.dtype.bits, pitch)

    def __str__(self) -> str:
        return f"{self.space}:{self.address}"


def is_part(name: str) -> bool:
    """Whether a name is that of a part of shared memory."""
    return name.startswith(PART)


@dataclass(frozen=True)
class AddressedMbarriers:
    """The mbarrier at the byte ``address`` in shared memory, where ``mbarrier.init`` has made it.

    See `tilesim.ir.addresses.mbar_at`.
    """

    address: Expr
    space: Literal["shared::cta", "shared::cluster"] = "shared::cta"

    @property
    def name(self) -> str:
        """Barriers at addresses of one state space go by one name, which nothing declares."""
        return f".{self.space}"

    @property
    def count(self) -> int:
        """Mbarriers at one address."""
        return 1

    def __str__(self) -> str:
        return f"{self.space}:{self.address}"
