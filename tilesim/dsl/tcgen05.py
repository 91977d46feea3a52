"""``k.tcgen05`` and ``k.clc``: tensor cores with tensor memory, cluster launch control (G, D.7)."""

from __future__ import annotations

from typing import Literal

from tilesim.arith.types import DType, bf16, e4m3, e5m2, f16, s8, tf32, u8
from tilesim.dsl.methods import MbarLike, Namespace, ViewLike, as_mbar, as_view, optional, records
from tilesim.ir.declarations import Fragment, View
from tilesim.ir.expr import Operand, Special, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.ops import clc, tcgen05, tcgen05_mma
from tilesim.ir.ops.tcgen05_mma import (
    SCALE_VECTORS,
    CopyMulticast,
    CopyShape,
    CtaGroup,
    Kind,
    LoadShape,
    Narrow,
)
from tilesim.ir.tensor_memory import LANES, TmemView, tmem_view
from tilesim.records import replace

_KINDS: dict[DType, Kind] = {
    f16: "f16", bf16: "f16", tf32: "tf32", e4m3: "f8f6f4", e5m2: "f8f6f4", s8: "i8", u8: "i8",
}  # fmt: skip
_LANES_PER_WARP = 32


class Tcgen05Ops(Namespace):
    """Tensor memory and fifth-generation tensor cores (SEMANTICS section G)."""

    def tensor(
        self, address: Operand, dtype: DType, shape: tuple[int, int], *, name: str = "tmem",
        packed: bool = True,
    ) -> TmemView:  # fmt: skip
        """What lies at a tensor memory address: (lanes, elements per lane); no instruction.

        ``packed=False``: one element per column, as an mma leaves 16-bit elements of D.
        """
        return tmem_view(address, dtype, shape, name, packed=packed)

    @records(tcgen05.Tcgen05Alloc)
    def alloc(self, dst: ViewLike, columns: int, *, cta_group: CtaGroup = 1) -> None:
        """Allocates ``columns`` of tensor memory and writes their address to shared memory
        (G4-G6); see `Tcgen05Alloc`.
        """
        self._k.emit(
            tcgen05.Tcgen05Alloc(
                dst=as_view(dst), columns=columns, cta_group=cta_group, loc=caller()
            )
        )

    @records(tcgen05.Tcgen05Dealloc)
    def dealloc(self, address: Operand, columns: int, *, cta_group: CtaGroup = 1) -> None:
        """Frees what one tcgen05.alloc returned (G8, G9); every use must be complete."""
        self._k.emit(
            tcgen05.Tcgen05Dealloc(
                address=as_expr(address), columns=columns, cta_group=cta_group, loc=caller()
            )
        )

    @records(tcgen05.Tcgen05RelinquishAllocPermit)
    def relinquish_alloc_permit(self, *, cta_group: CtaGroup = 1) -> None:
        """The CTA will allocate no more, so that CTAs on the same SM can (G7)."""
        self._k.emit(tcgen05.Tcgen05RelinquishAllocPermit(cta_group=cta_group, loc=caller()))

    @records(tcgen05_mma.Tcgen05Mma)
    def mma(
        self,
        d: TmemView,
        a: ViewLike | TmemView,
        b: ViewLike,
        *,
        kind: Kind | None = None,
        accumulate: Operand = 1,
        cta_group: CtaGroup = 1,
        a_trans: bool = False,
        b_trans: bool = False,
        a_type: Narrow | None = None,
        b_type: Narrow | None = None,
        scale_a: TmemView | None = None,
        scale_b: TmemView | None = None,
        scale_vec: int | None = None,
        scale_id: int = 0,
        scale_input_d: int = 0,
        disable_output_lane: tuple[int, ...] = (),
    ) -> None:
        """``d = a @ b + d`` (without ``+ d`` where ``accumulate`` is 0).

        ``a``: shared or tensor memory (rows, K) of 64 or 128 rows per CTA, ``b``: shared memory
        (N, K), with ``a_trans`` / ``b_trans`` (K, rows); K fills 32 bytes. ``d`` is (rows, N),
        or where the columns are folded (128, N / 2). With ``cta_group=2`` every view names the
        part of the executing CTA; see `Tcgen05Mma`.
        """
        operand = as_view(b)
        chosen = kind or _kind(operand, a_type, b_type)
        vector = scale_vec or SCALE_VECTORS.get(chosen, (1,))[0]
        self._k.emit(
            tcgen05_mma.Tcgen05Mma(
                d=d, a=a if isinstance(a, TmemView) else as_view(a), b=operand, kind=chosen,
                accumulate=as_expr(accumulate), cta_group=cta_group, a_trans=a_trans,
                b_trans=b_trans, a_type=a_type, b_type=b_type, scale_a=scale_a,
                scale_b=scale_b, scale_vec=vector, scale_id=scale_id, scale_input_d=scale_input_d,
                disable_output_lane=disable_output_lane, loc=caller(),
            )
        )  # fmt: skip

    @records(tcgen05_mma.Tcgen05MmaSp)
    def mma_sp(
        self,
        d: TmemView,
        a: ViewLike | TmemView,
        b: ViewLike,
        metadata: TmemView,
        *,
        kind: Kind | None = None,
        accumulate: Operand = 1,
        cta_group: CtaGroup = 1,
        a_trans: bool = False,
        b_trans: bool = False,
        a_type: Narrow | None = None,
        b_type: Narrow | None = None,
        scale_input_d: int = 0,
        disable_output_lane: tuple[int, ...] = (),
    ) -> None:
        """`mma` with the zeros of A left out, half of every row; see `Tcgen05MmaSp`."""
        operand = as_view(b)
        self._k.emit(
            tcgen05_mma.Tcgen05MmaSp(
                d=d, a=a if isinstance(a, TmemView) else as_view(a), b=operand, metadata=metadata,
                kind=kind or _kind(operand, a_type, b_type), accumulate=as_expr(accumulate),
                cta_group=cta_group, a_trans=a_trans, b_trans=b_trans, a_type=a_type,
                b_type=b_type, scale_input_d=scale_input_d,
                disable_output_lane=disable_output_lane, loc=caller(),
            )
        )  # fmt: skip

    @records(tcgen05_mma.Tcgen05MmaWs)
    def mma_ws(
        self,
        d: TmemView,
        a: ViewLike | TmemView,
        b: ViewLike,
        *,
        kind: Kind | None = None,
        accumulate: Operand = 1,
        a_trans: bool = False,
        b_trans: bool = False,
        a_type: Narrow | None = None,
        b_type: Narrow | None = None,
    ) -> None:
        """The weight-stationary product of one CTA, also with 32 rows; see `Tcgen05MmaWs`."""
        operand = as_view(b)
        self._k.emit(
            tcgen05_mma.Tcgen05MmaWs(
                d=d, a=a if isinstance(a, TmemView) else as_view(a), b=operand,
                kind=kind or _kind(operand, a_type, b_type), accumulate=as_expr(accumulate),
                a_trans=a_trans, b_trans=b_trans, a_type=a_type, b_type=b_type, loc=caller(),
            )
        )  # fmt: skip

    @records(tcgen05.Tcgen05Cp)
    def cp(
        self,
        dst: TmemView,
        src: ViewLike,
        shape: CopyShape,
        *,
        multicast: CopyMulticast | None = None,
        cta_group: CtaGroup = 1,
    ) -> None:
        """Copies rows of shared memory to lanes of tensor memory, issued by one thread (G16,
        G18); see `Tcgen05Cp`.
        """
        self._k.emit(
            tcgen05.Tcgen05Cp(
                dst=dst, src=as_view(src), shape=shape, multicast=multicast, cta_group=cta_group,
                loc=caller(),
            )
        )  # fmt: skip

    @records(tcgen05.Tcgen05Shift)
    def shift(self, dst: TmemView, *, cta_group: CtaGroup = 1) -> None:
        """Moves the 32-byte rows of 32 lanes down by one lane, issued by one thread
        (G18); see `Tcgen05Shift`.
        """
        self._k.emit(tcgen05.Tcgen05Shift(dst=dst, cta_group=cta_group, loc=caller()))

    @records(tcgen05.Tcgen05Ld)
    def ld(
        self,
        dst: Fragment,
        src: TmemView,
        *,
        shape: LoadShape = "32x32b",
        half_split: int = 0,
    ) -> None:
        """Each warp loads its lanes; a view of all 128 lanes stands for the warp's own 32."""
        self._k.emit(
            tcgen05.Tcgen05Ld(
                dst=dst, src=_quarter(src, shape), shape=shape, half_split=half_split, loc=caller()
            )
        )

    @records(tcgen05.Tcgen05St)
    def st(
        self,
        dst: TmemView,
        src: Fragment,
        *,
        shape: LoadShape = "32x32b",
        half_split: int = 0,
    ) -> None:
        """Each warp stores to its lanes; a view of all 128 lanes stands for the warp's own 32."""
        self._k.emit(
            tcgen05.Tcgen05St(
                dst=_quarter(dst, shape), src=src, shape=shape, half_split=half_split, loc=caller()
            )
        )

    @records(tcgen05.Tcgen05Wait)
    def wait_ld(self) -> None:
        """``tcgen05.wait::ld``."""
        self._k.emit(tcgen05.Tcgen05Wait(kind="ld", loc=caller()))

    @records(tcgen05.Tcgen05Wait)
    def wait_st(self) -> None:
        """``tcgen05.wait::st``."""
        self._k.emit(tcgen05.Tcgen05Wait(kind="st", loc=caller()))

    @records(tcgen05.Tcgen05Commit)
    def commit(
        self,
        mbar: MbarLike,
        *,
        multicast: Operand | None = None,
        cta_group: CtaGroup = 1,
    ) -> None:
        """Arrives once on ``mbar`` when the thread's earlier mma, cp and shift are complete
        (G26); see `Tcgen05Commit`.
        """
        self._k.emit(
            tcgen05.Tcgen05Commit(
                mbar=as_mbar(mbar), multicast=optional(multicast), cta_group=cta_group,
                loc=caller(),
            )
        )  # fmt: skip

    @records(tcgen05.Tcgen05Fence)
    def fence_before_thread_sync(self) -> None:
        """``tcgen05.fence::before_thread_sync`` / ``::after_thread_sync`` (G22)."""
        self._k.emit(tcgen05.Tcgen05Fence(side="before_thread_sync", loc=caller()))

    @records(tcgen05.Tcgen05Fence)
    def fence_after_thread_sync(self) -> None:
        """``tcgen05.fence::before_thread_sync`` / ``::after_thread_sync`` (G22)."""
        self._k.emit(tcgen05.Tcgen05Fence(side="after_thread_sync", loc=caller()))


def _kind(b: View, *narrow: Narrow | None) -> Kind:
    """The kind of a product with this B."""
    return "f8f6f4" if any(narrow) else _KINDS.get(b.dtype, "f16")


def _quarter(view: TmemView, shape: LoadShape) -> TmemView:
    """The lanes of the executing warp where ``view`` has all 128 (``taddr + (warp % 4 << 21)``)."""
    if not isinstance(view, TmemView) or view.shape[0] != LANES:
        return view  # what is no tensor memory is refused where it is recorded
    lane = Special("warp_id") % 4 * _LANES_PER_WARP
    rows = tcgen05.LOAD_SHAPES[shape][0]
    return replace(view, address=view.address + lane * 0x10000, shape=(rows, view.shape[1]))


class ClcOps(Namespace):
    """Cluster launch control (SEMANTICS D.7)."""

    @records(clc.ClcTryCancel)
    def try_cancel(self, response: ViewLike, mbar: MbarLike, *, multicast: bool = False) -> None:
        """Asks to cancel a cluster that has not been launched; completes 16 bytes on ``mbar``
        (D18); see `ClcTryCancel`.
        """
        self._k.emit(
            clc.ClcTryCancel(
                response=as_view(response), mbar=as_mbar(mbar), multicast=multicast, loc=caller()
            )
        )

    @records(clc.ClcQueryIsCanceled)
    def query_is_canceled(self, result: Var, response: ViewLike) -> None:
        """Loads the response; ``result`` is 1 if a cluster was cancelled, 0 if the request
        failed.
        """
        self._k.emit(
            clc.ClcQueryIsCanceled(result=result, response=as_view(response), loc=caller())
        )

    @records(clc.ClcQueryGetFirstCtaid)
    def query_first_ctaid(
        self, result: Var, response: ViewLike, axis: Literal["x", "y", "z"] = "x"
    ) -> None:
        """Loads the response; ``result`` is one coordinate of the cancelled cluster's first
        CTA; see `ClcQueryGetFirstCtaid`.
        """
        self._k.emit(
            clc.ClcQueryGetFirstCtaid(
                result=result, response=as_view(response), axis=axis, loc=caller()
            )
        )
