"""The Python DSL: a `Builder` records declarations, control flow and instructions of one kernel.

Instruction namespaces (``k.mbarrier``, ``k.tma``, ...) are in `tilesim.dsl`.

An instruction that a kernel names but does not call is an error: ``k.break_`` for ``k.break_()``.
Python evaluates such a statement and drops what it gives, so nothing would be recorded. It is seen
in the byte code: attributes of a variable that are looked up, one after the other, and dropped.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any, Literal

from tilesim.arith.types import pred, s32
from tilesim.dsl.arguments import (
    DTypeLike,
    Shape,
    as_bound,
    as_condition,
    as_count,
    as_counts,
    as_dim3,
    as_dtype,
    as_shape,
    as_target,
    check_kinds,
    optional_count,
    plain,
)
from tilesim.dsl.copies import TmaOps
from tilesim.dsl.generated import BuilderMethods
from tilesim.dsl.loop_state import Iterations
from tilesim.dsl.mbarrier import MbarrierOps
from tilesim.dsl.methods import records
from tilesim.dsl.region import Region, region
from tilesim.dsl.sync import BarOps, ClusterOps
from tilesim.dsl.tcgen05 import ClcOps, Tcgen05Ops
from tilesim.dsl.tile import TileOps
from tilesim.dsl.warps import NamedBarrier, NamedBarriers, Warps
from tilesim.errors import Diagnostic, InvalidProgram, reject
from tilesim.ir.declarations import (
    Distribution,
    Fragment,
    GlobalTensor,
    Mbarriers,
    SharedTensor,
    TensorMap,
)
from tilesim.ir.expr import Expr, Operand, ScalarParam, Special, Var, as_expr, named, owners
from tilesim.ir.layout import Swizzle
from tilesim.ir.loc import Loc, caller, shortened
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import FULL_MASK, BarSync, ElectSync, Exit, Setmaxnreg, SyncWarp
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import Break, For, If, Program, Role, Shared, Stmt, While
from tilesim.records import replace


def uncalled(codes: set[CodeType], *things: object) -> list[Diagnostic]:
    """The statements of these functions that only name a method of one of ``things``."""
    found = []
    for code in codes:
        for chain, line in _dropped(code):
            if any(_is_method(thing, chain[1:]) for thing in things):
                text = ".".join(chain)
                found.append(Diagnostic(
                    "operand", f"`{text}` names an instruction, but does not call it: nothing is "
                    "recorded", Loc(shortened(code.co_filename), line, code.co_name),
                    f"write `{text}(...)`",
                ))  # fmt: skip
    return sorted(found, key=lambda d: (d.loc.file, d.loc.line))


def _is_method(thing: object, attributes: tuple[str, ...]) -> bool:
    for name in attributes:
        if name.startswith("_") or not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return callable(thing)


#: an attribute that is looked up and thrown away
_DROPPED = bytes((dis.opmap["LOAD_ATTR"], dis.opmap["POP_TOP"]))


@lru_cache(maxsize=256)
def _dropped(code: CodeType) -> tuple[tuple[tuple[str, ...], int], ...]:
    """The statements that are attributes of a variable and nothing else, with their lines."""
    return tuple(_statements(code))


def _statements(code: CodeType) -> Iterator[tuple[tuple[str, ...], int]]:
    chain: tuple[str, ...] = ()
    # bytecode is pairs of an operation and its argument; caches, which are 0, are behind some
    dropped = _DROPPED in code.co_code[::2].replace(b"\0", b"")
    for step in dis.get_instructions(code) if dropped else ():
        if step.opname.startswith("LOAD_") and isinstance(step.argval, str):
            chain = (
                (*chain, step.argval) if step.opname == "LOAD_ATTR" and chain else (step.argval,)
            )
        elif step.opname == "POP_TOP" and len(chain) > 1 and step.positions is not None:
            yield chain, step.positions.lineno or code.co_firstlineno
            chain = ()
        elif step.opname not in ("CACHE", "EXTENDED_ARG"):
            chain = ()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _statements(inner)


# ------------------------------------------------------------------ the builder


#: the alignment that a swizzle asks for
_ALIGNED = {0: 128, 32: 256, 64: 512, 128: 1024}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Builder(BuilderMethods):
    """Records one kernel; `finish` returns the `Program`.

    Declarations return handles (`GlobalTensor`, `SharedTensor`, `Mbarriers`, `TensorMap`,
    `Fragment`, `Var`); instructions are methods of the namespaces; regions are context managers.
    """

    called = "k"
    warp_id, lane_id, thread_id = Special("warp_id"), Special("lane_id"), Special("thread_id")
    cta_x, cta_y, cta_z = Special("cta_x"), Special("cta_y"), Special("cta_z")
    grid_x, grid_y, grid_z = Special("grid_x"), Special("grid_y"), Special("grid_z")
    cluster_rank = Special("cluster_rank")
    cluster_size = Special("cluster_size")
    cluster_id = Special("cluster_id")

    def __init__(
        self, name: str, target: str = "sm_90a", warps: int = 4, *, loc: Loc | None = None
    ) -> None:
        """``loc``: where the kernel is defined, if not where this is called."""
        self.loc = loc = caller() if loc is None else loc
        self.name = name
        self._launch: dict[str, Any] = {"target": as_target(target, loc)}
        self._launch["warps"] = as_count(warps, "warps", loc)
        self._set_at: dict[str, Loc] = {}
        self._params: list[GlobalTensor | ScalarParam] = []
        self._maps: list[TensorMap] = []
        self._shared: list[Shared] = []
        self._fragments: list[Fragment] = []
        self._variables: list[Var] = []
        self._own: set[int] = set()
        self._names: set[str] = set()
        self._stack: list[list[Stmt]] = [[]]
        #: values of scalars, where others than those in the kernel are passed
        self.passed: Mapping[str, Any] = {}
        #: regions that no ``with`` statement has entered
        self.unopened: list[Region[object]] = []
        #: users' functions that have regions
        self.codes: set[CodeType] = set()
        #: what the loops change in Python
        self.iterations = Iterations()
        owners.add(self)
        self.mbarrier = MbarrierOps(self)
        self.tma = TmaOps(self)
        self._barriers = NamedBarriers(self)
        self.bar = BarOps(self, self._barriers)
        self.cluster = ClusterOps(self)
        self.tcgen05 = Tcgen05Ops(self)
        self.clc = ClcOps(self)
        self.tile = TileOps(self)

    # ------------------------------------------------------------------ launch and declarations

    def launch(
        self,
        *,
        grid: int | Sequence[int] | None = None,
        cluster: int | Sequence[int] | None = None,
        warps: int | None = None,
        registers: int | None = None,
        smem_bytes: int | None = None,
        target: str | None = None,
        cooperative: bool | None = None,
    ) -> None:
        """Sets the launch shape: ``grid`` in CTAs, ``cluster`` in CTAs per cluster, ``warps`` per
        CTA, ``registers`` per thread at launch, ``smem_bytes`` of dynamic shared memory,
        ``cooperative`` if CTAs of different clusters may wait for each other."""
        loc = caller()
        if cooperative not in (None, True, False):
            what = f"cooperative is {named(cooperative)}, not True or False"
            raise reject(what, loc, rule="launch")
        given = {
            "grid": grid if grid is None else as_dim3(grid, loc),
            "cluster": cluster if cluster is None else as_dim3(cluster, loc),
            "warps": optional_count(warps, "warps", loc),
            "registers": optional_count(registers, "registers", loc),
            "smem_bytes": optional_count(smem_bytes, "smem_bytes", loc),
            "cooperative": cooperative if cooperative is None else bool(cooperative),
            "target": target if target is None else as_target(target, loc),
        }
        settings = {name: value for name, value in given.items() if value is not None}
        self._launch |= settings
        self._set_at |= dict.fromkeys(settings, loc)

    def tensor(
        self,
        name: str,
        dtype: DTypeLike,
        shape: Shape,
        strides: Shape | None = None,
        *,
        dependent: bool = False,
        devices: int = 1,
    ) -> GlobalTensor:
        """A kernel parameter in global memory; ``strides`` in elements, row-major if omitted.

        ``dependent``: the grid before this one may still be using it (dependent launch, D17).
        ``devices``: it is a multimem address, of memory in so many devices (H20).
        """
        loc = caller()
        tensor = GlobalTensor(
            self._claim(name),
            as_dtype(dtype, name, loc),
            as_shape(shape, f"the shape of {name}", loc),
            None if strides is None else as_counts(strides, f"the strides of {name}", loc),
            bool(dependent),
            as_count(devices, f"devices of {name}", loc),
            loc,
        )
        self._params.append(tensor)
        return tensor

    def scalar(self, name: str, value: int, dtype: DTypeLike = s32) -> ScalarParam:
        """A kernel parameter passed by value; ``--param NAME=VALUE`` gives it another one."""
        loc = caller()
        given = self.passed.get(name, value)
        param = ScalarParam(self._claim(name), given, as_dtype(dtype, f"scalar {name}", loc))
        check_kinds(param, f"scalar {name}", loc)
        self._params.append(param)
        return param

    def shared(
        self,
        name: str,
        dtype: DTypeLike,
        shape: Shape,
        *,
        swizzle: Swizzle = 0,
        pitch: int | None = None,
        align: int | None = None,
        offset: int | None = None,
    ) -> SharedTensor:
        """A tensor in shared memory; see `SharedTensor`. ``align``: by default the swizzle's."""
        loc = caller()
        row: Any = as_count(swizzle, f"the swizzle of {name}", loc)
        default = _ALIGNED.get(row, 128)
        tensor = SharedTensor(
            self._claim(name), as_dtype(dtype, name, loc),
            as_shape(shape, f"the shape of {name}", loc), row,
            optional_count(pitch, f"the pitch of {name}", loc),
            default if align is None else as_count(align, f"the alignment of {name}", loc),
            optional_count(offset, f"the offset of {name}", loc), loc,
        )  # fmt: skip
        self._shared.append(tensor)
        return tensor

    def mbarriers(self, name: str, count: int = 1, *, offset: int | None = None) -> Mbarriers:
        """``count`` mbarriers in shared memory (not initialised)."""
        loc = caller()
        number = as_count(count, f"the number of mbarriers of {name}", loc)
        target = self._launch["target"]
        if 8 * number > target.smem:  # before Python goes through them
            raise reject(f"{name} has {number:,} mbarriers of 8 bytes, {target} has "
                         f"{target.smem:,} bytes of shared memory per CTA", loc)  # fmt: skip
        array = Mbarriers(
            self._claim(name), number, optional_count(offset, f"the offset of {name}", loc), loc
        )
        self._shared.append(array)
        return array

    def named_barrier(self, threads: int | None = None) -> NamedBarrier:
        """A named barrier of ``threads`` threads (default: all), with an id that need not be
        picked."""
        loc = caller()
        return self._barriers.new(optional_count(threads, "threads", loc), loc)

    def tensor_map(
        self,
        tensor: GlobalTensor,
        box: Shape,
        *,
        swizzle: Swizzle = 0,
        element_strides: Shape | None = None,
        fill: Literal["zero", "nan"] = "zero",
        lower: Shape | None = None,
        upper: Shape | None = None,
        wide: Literal["w", "w::128"] | None = None,
        packing: Literal["b4x16", "b4x16_p64", "b6x16_p32", "b6p2x16"] | None = None,
        name: str | None = None,
    ) -> TensorMap:
        """A TMA descriptor over ``tensor``; ``box`` in elements, slowest dimension first.

        With the corners ``lower`` and ``upper`` it is one for the im2col modes, with ``packing``
        one of elements narrower than a byte; see `TensorMap`.
        """
        loc = caller()
        if not isinstance(tensor, GlobalTensor):
            raise reject(f"a tensor map needs a tensor in global memory, not {named(tensor)}",
                         loc, fix="declare the tensor with k.tensor(...)")  # fmt: skip
        called = name or f"{tensor.name}_map"
        strides, low, high = (
            None if given is None else as_counts(given, f"{what} of {called}", loc) or None
            for what, given in (("element_strides", element_strides), ("lower", lower),
                                ("upper", upper))
        )  # fmt: skip
        tensor_map = TensorMap(
            self._claim(called), tensor, as_counts(box, f"the box of {called}", loc),
            swizzle, strides, fill, low, high, wide, packing, loc,
        )  # fmt: skip
        check_kinds(tensor_map, f"tensor map {called}", loc)
        self._maps.append(tensor_map)
        return tensor_map

    def fragment(
        self, name: str, dtype: DTypeLike, shape: Shape, distribution: Distribution = "warp"
    ) -> Fragment:
        """A register tile per warp, or per warpgroup in wgmma's layout; see `Fragment`."""
        loc = caller()
        extents = as_counts(shape, f"the shape of {name}", loc)
        if not 1 <= len(extents) <= 2:
            raise reject(f"fragment {name} has {len(extents)} dimensions, not one or two", loc)
        rows, columns = extents if len(extents) == 2 else (1, *extents)
        element = as_dtype(dtype, f"fragment {name}", loc)
        fragment = Fragment(self._claim(name), element, (rows, columns), distribution, loc)
        check_kinds(fragment, f"fragment {name}", loc)
        self._fragments.append(fragment)
        return fragment

    def var(self, name: str, value: Operand | None = None, dtype: DTypeLike = s32) -> Var:
        """A per-lane register, set to ``value`` here if one is given.

        ``phase ^= 1`` and the like set it as `assign` does: it keeps its value from one iteration
        of a loop to the next.
        """
        var = Var(self._claim(name), as_dtype(dtype, f"variable {name}", caller()))
        self._own.add(id(var))
        self._variables.append(var)
        if value is not None:
            self.assign(var, value)
        return var

    # ------------------------------------------------------------------ control flow

    @region
    def role(self, name: str, warps: int | Sequence[int]) -> Iterator[Warps]:
        """A region for these warps of the CTA only; they have a barrier and an elected thread."""
        loc = caller()
        if not isinstance(name, str):
            raise reject(f"the name of the role is {named(name)}, not a text", loc)
        members = as_counts(warps, f"the warps of role {name}", loc)
        with self._region() as body:
            yield Warps(self, self._barriers, members)
        self._append(Role(name=name, warps=members, body=tuple(body), loc=loc))

    @region
    def warpgroup(self, index: int, name: str = "") -> Iterator[Warps]:
        """A `role` of the four warps of warpgroup ``index``: warps 4 ``index`` and following."""
        first = 4 * as_count(index, "the number of the warpgroup", caller())
        with self.role(name or f"warpgroup {index}", range(first, first + 4)) as warps:
            yield warps

    @region
    def if_(self, cond: Expr, *, sync: bool = True) -> Iterator[None]:
        """A region for the lanes in which ``cond`` holds. After it the lanes reconverge
        (`bar.warp.sync`); without ``sync`` nothing orders them."""
        loc = caller()
        with self._region() as body:
            yield
        self._append(If(cond=as_condition(cond, loc), then=tuple(body), sync=sync, loc=loc))

    @region
    def else_(self) -> Iterator[None]:
        """The other arm of the ``if_`` that directly precedes it."""
        loc = caller()
        block = self._stack[-1]
        if not block or not isinstance(block[-1], If) or block[-1].orelse:
            raise reject("else_ must directly follow an if_", loc)
        before = block.pop()
        assert isinstance(before, If)
        with self._region() as body:
            yield
        block.append(replace(before, orelse=tuple(body)))

    @records(ElectSync)
    @region
    def elected(self, *, sync: bool = True) -> Iterator[None]:
        """``elect.sync`` and a region for the elected lane of each executing warp.

        The lanes reconverge before and after it (`bar.warp.sync`); without ``sync`` nothing orders
        the elected lane and what the others do before and after.
        """
        loc = caller()
        chosen = Var(self._fresh("elected"), pred)
        self._variables.append(chosen)
        self.emit(ElectSync(result=chosen, warp_sync=sync, loc=loc))
        with self._region() as body:
            yield
        self._append(If(cond=chosen, then=tuple(body), loc=loc))

    @records(ElectSync)
    @region
    def one_thread(self, warp: int = 0) -> Iterator[None]:
        """A region for one lane of one warp: a single-warp role around `elected`."""
        with self.role(f"warp {warp}", [warp]), self.elected():
            yield

    @region
    def loop(
        self, start: Operand, stop: Operand | None = None, step: Operand = 1, *, name: str = "i",
        sync: bool = True,
    ) -> Iterator[Var]:  # fmt: skip
        """``for i in range(...)``, executed (not unrolled) by the kernel. After it lanes that left
        by `break_` reconverge with the others, unless ``sync`` is false, as for `if_`."""
        loc = caller()
        low, high = (0, start) if stop is None else (start, stop)
        var = Var(self._fresh(name), s32)
        self._variables.append(var)
        with self._region() as body:
            yield var
        first, last, by = (as_bound(bound, loc) for bound in (low, high, step))
        self._append(
            For(var=var, start=first, stop=last, step=by, body=tuple(body), sync=sync, loc=loc)
        )

    @region
    def while_(self, cond: Expr, *, sync: bool = True) -> Iterator[None]:
        """Repeats while ``cond`` holds; lanes leave as their condition turns false, and reconverge
        after it (`bar.warp.sync`); without ``sync`` nothing orders them."""
        loc = caller()
        with self._region() as body:
            yield
        self._append(While(cond=as_condition(cond, loc), body=tuple(body), sync=sync, loc=loc))

    def break_(self) -> None:
        """Leaves the innermost loop."""
        self._append(Break(loc=caller()))

    # ------------------------------------------------------------------ common instructions

    @records(Assign)
    def assign(self, var: Var, value: Operand) -> None:
        """``var = value``."""
        self.emit(Assign(var=var, value=as_expr(value), loc=caller()))

    @records(BarSync)
    def sync_threads(self) -> None:
        """``__syncthreads()``: named barrier 0 with every thread of the CTA (E1)."""
        self.emit(BarSync(id=as_expr(0), loc=caller()))

    @records(SyncWarp)
    def sync_warp(self, mask: Operand = FULL_MASK) -> None:
        """``__syncwarp(mask)`` (E11)."""
        self.emit(SyncWarp(mask=as_expr(mask), loc=caller()))

    @records(ElectSync)
    def elect(self, name: str = "elected", mask: int = FULL_MASK, *, warp_sync: bool = True) -> Var:
        """``elect.sync``: a predicate that is 1 in one lane of ``mask`` (E12); see `elected`."""
        chosen = Var(self._fresh(name), pred)
        self._variables.append(chosen)
        self.emit(ElectSync(result=chosen, mask=mask, warp_sync=warp_sync, loc=caller()))
        return chosen

    @records(Setmaxnreg)
    def setmaxnreg(self, action: Literal["inc", "dec"], count: int) -> None:
        """``setmaxnreg.inc/.dec`` to ``count`` registers per thread (E13-E18)."""
        self.emit(Setmaxnreg(count=count, action=action, loc=caller()))

    @records(Exit)
    def exit(self) -> None:
        """The active lanes end."""
        self.emit(Exit(loc=caller()))

    def owns(self, var: Var) -> bool:
        """Whether ``var`` was made by `var` of this builder."""
        return id(var) in self._own

    # ------------------------------------------------------------------ recording

    def emit(self, op: Op) -> None:
        """Appends an instruction to the open region.

        Raises:
            InvalidProgram: an operand is of another kind than the instruction takes.
        """
        check_kinds(op, op.mnemonic, op.loc)
        self._append(plain(op))

    @property
    def recorder(self) -> Builder:
        """What records the statements of the kernel."""
        return self

    @property
    def declared(self) -> dict[str, object]:
        """What is declared so far by its name, in order within each kind."""
        things = (*self._params, *self._maps, *self._shared, *self._fragments, *self._variables)
        return {thing.name: thing for thing in things}

    @property
    def last(self) -> Stmt:
        """The statement that the open region got last."""
        return self._stack[-1][-1]

    def finish(self) -> Program:
        """The finished program (not verified).

        Raises:
            InvalidProgram: a region was opened without a ``with`` statement, or an instruction is
                named, but not called.
        """
        problems = [r.problem() for r in self.unopened]
        problems += uncalled(self.codes, self, Warps, NamedBarrier)
        if problems:
            raise InvalidProgram(problems)
        return Program(
            name=self.name,
            **self._launch,
            params=tuple(self._params),
            maps=tuple(self._maps),
            shared=tuple(self._shared),
            fragments=tuple(self._fragments),
            variables=tuple(self._variables),
            body=tuple(self._stack[0]),
            loc=self.loc,
            set_at=self._set_at,
        )

    def _append(self, stmt: Stmt) -> None:
        self._stack[-1].append(stmt)

    @contextmanager
    def _region(self) -> Iterator[list[Stmt]]:
        body: list[Stmt] = []
        self._stack.append(body)
        try:
            yield body
        finally:
            self._stack.pop()

    def _claim(self, name: str) -> str:
        if not isinstance(name, str) or not _NAME.match(name):
            raise reject(f"{name!r} is not an identifier", caller(), rule="name")
        if name in self._names:
            raise reject(f"the name {name!r} is declared twice", caller(), rule="name")
        self._names.add(name)
        return name

    def _fresh(self, name: str) -> str:
        candidate, n = name, 1
        while candidate in self._names:
            candidate, n = f"{name}_{n}", n + 1
        return self._claim(candidate)
