"""Register tiles: the loops that move and compute a thread's elements of a fragment.

Which thread holds which element is said in `tilesim.ir.fragments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tilesim.arith.types import bf16, f16
from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.gpu.emit.expr import math_type, narrow, storage_type, widen
from tilesim.gpu.emit.memory import Index, pairs_aligned, pointer
from tilesim.ir.declarations import Fragment, View
from tilesim.ir.expr import Expr
from tilesim.ir.fragments import Layout
from tilesim.ir.ops.tile import (
    TileCast,
    TileFill,
    TileFma,
    TileLeft,
    TileLoad,
    TileMap,
    TileReduce,
    TileStore,
    TileTril,
    TileZip,
)

FULL = "0xffffffff"


def _lane(e: Emitter) -> str:
    e.names.specials.add("lane_id")
    return e.names.names["lane_id"]


def _warp(e: Emitter) -> str:
    e.names.specials.add("warp_id")
    return e.names.names["warp_id"]


def name_of(e: Emitter, fragment: Fragment) -> str:
    """The C array of a fragment."""
    return e.names.names[fragment.name]


@contextmanager
def _loop(e: Emitter, name: str, count: int) -> Iterator[None]:
    e.line("#pragma unroll")
    with e.block(f"for (u32 {name} = 0; {name} < {count}; ++{name}) {{"):
        yield


def _index(view: View, row: str, column: str) -> Index:
    if len(view.dims) == 1:
        return {view.dims[0]: column}
    return {view.dims[-2]: row, view.dims[-1]: column}


@contextmanager
def _elements(e: Emitter, shape: Layout, *, store: bool = False) -> Iterator[tuple[str, str, str]]:
    """A loop over a thread's elements: the register, and the element's row and column.

    ``store``: by one of the lanes that hold an element, if there are several.
    """
    lane = _lane(e)
    if shape.lanes:
        row = f"({_warp(e)} & 3) * 32 + {lane}" if shape.warpgroup else lane
        with _loop(e, "i_", shape.count):
            yield "i_", row, "(s32)i_"
        return
    if not shape.warpgroup:
        with _loop(e, "r_", shape.rows):
            if shape.single:
                with _guard(e, f"{lane} == r_ % 32" if store else ""):
                    yield "r_", "(s32)r_", "0"
                return
            with _loop(e, "c_", shape.width):
                e.line(f"const s32 column_ = {lane} + 32 * c_;")
                with _guard(e, f"column_ < {shape.columns}" if shape.columns % 32 else ""):
                    register = "r_" if shape.width == 1 else f"r_ * {shape.width} + c_"
                    yield register, "(s32)r_", "column_"
        return
    if shape.row:
        with _loop(e, "i_", shape.count):
            e.line(f"const s32 column_ = {_column(shape, 'i_', lane)};")
            yield "i_", "0", "column_"
        return
    rows = f"({_warp(e)} & 3) * {shape.rows // 4} + ({lane} >> 2)"
    if shape.single:
        with _guard(e, f"({lane} & 3) == 0" if store else ""), _loop(e, "i_", shape.count):
            yield "i_", f"{rows} + 8 * (s32)i_", "0"
        return
    with _loop(e, "i_", shape.count):
        e.line(f"const s32 row_ = {rows} + {_row_in_warp(shape, 'i_')};")
        e.line(f"const s32 column_ = {_column(shape, 'i_', lane)};")
        yield "i_", "row_", "column_"


def _row_in_warp(shape: Layout, i: str) -> str:
    """Row of element ``i`` within the warp's rows, less the lane's part."""
    half = f"8 * ({i} >> 1 & 1)"
    return half if shape.rows == 64 else f"16 * ({i} / {shape.block}) + {half}"


def _column(shape: Layout, i: str, lane: str) -> str:
    if shape.row:
        return f"8 * ({i} >> 1) + 2 * ({lane} & 3) + ({i} & 1)"
    within = i if shape.rows == 64 else f"({i} % {shape.block})"
    return f"8 * ({within} >> 2) + 2 * ({lane} & 3) + ({i} & 1)"


@contextmanager
def _guard(e: Emitter, condition: str) -> Iterator[None]:
    if condition:
        with e.block(f"if ({condition}) {{"):
            yield
    else:
        yield


@contextmanager
def _pairs(e: Emitter, shape: Layout, view: View) -> Iterator[tuple[str, str]]:
    """A loop over neighbouring pairs of a warpgroup fragment: first register, pair pointer."""
    lane = _lane(e)
    e.use("Pair")
    with _loop(e, "i_", shape.count // 2):
        rows = f"({_warp(e)} & 3) * {shape.rows // 4} + ({lane} >> 2)"
        row = "0" if shape.row else f"{rows} + {_row_in_warp(shape, '(2 * i_)')}"
        e.line(f"const s32 row_ = {row};")
        e.line(f"const s32 column_ = {_column(shape, '(2 * i_)', lane)};")
        kind = f"Pair<{storage_type(view.dtype)}>"
        yield "2 * i_", pointer(e, view, _index(view, "row_", "column_"), kind)


def _paired(shape: Layout, view: View) -> bool:
    return shape.warpgroup and not shape.single and not shape.lanes and pairs_aligned(view)


@EMIT.rule(TileFill)
def _fill(e: Emitter, op: TileFill) -> None:
    e.whole_warp()
    kind = e.names.type_of(op.value)
    math = math_type(op.dst.dtype)
    value = e.cast(op.value, "f64" if math == "f64" else "f32") if "f" in math else e.expr(op.value)
    narrowed = narrow(op.dst.dtype, value, math if "f" in math else kind, e.use)
    with _loop(e, "i_", e.layout(op.dst).count):
        e.line(f"{name_of(e, op.dst)}[i_] = {narrowed};")


@EMIT.rule(TileLoad)
def _load(e: Emitter, op: TileLoad) -> None:
    e.whole_warp()
    shape, target = e.layout(op.dst), name_of(e, op.dst)
    if _paired(shape, op.src):
        with _pairs(e, shape, op.src) as (register, place):
            e.line(f"const auto pair_ = *{place};")
            e.line(f"{target}[{register}] = pair_.x; {target}[{register} + 1] = pair_.y;")
        return
    with _elements(e, shape) as (register, row, column):
        place = pointer(e, op.src, _index(op.src, row, column))
        e.line(f"{target}[{register}] = *{place};")


@EMIT.rule(TileStore)
def _store(e: Emitter, op: TileStore) -> None:
    e.whole_warp()
    whole, source = e.layout(op.src), name_of(e, op.src)
    shape = whole if op.column is None else replace(whole, columns=op.dst.shape[-1])
    first = op.column or 0
    if _paired(shape, op.dst):
        with _pairs(e, shape, op.dst) as (register, place):
            x, y = (_of_part(whole, shape, first, r) for r in (register, f"{register} + 1"))
            e.line(f"*{place} = {{{source}[{x}], {source}[{y}]}};")
        return
    with _elements(e, shape, store=True) as (register, row, column):
        place = pointer(e, op.dst, _index(op.dst, row, column))
        e.line(f"*{place} = {source}[{_of_part(whole, shape, first, register)}];")


def _of_part(whole: Layout, part: Layout, column: int, register: str) -> str:
    """The register of a fragment that is ``register`` of its columns from ``column`` on."""
    if part == whole:
        return register
    if whole.lanes:
        return f"{register} + {column}"
    if not whole.warpgroup:
        return _in_wider_row(register, part.width, whole.width, column // 32)
    if whole.rows == 64:
        return f"{register} + {column // 2}"
    return _in_wider_row(register, part.block, whole.block, column // 2)


def _in_wider_row(register: str, narrow: int, wide: int, first: int) -> str:
    """Where element ``register`` of rows of ``narrow`` elements is in rows of ``wide`` ones."""
    return f"({register}) / {narrow} * {wide} + ({register}) % {narrow} + {first}"


_MAP = {
    "neg": "-{x}", "abs": "fabs({x})", "exp": "exp({x})", "exp2": "exp2({x})", "log": "log({x})",
    "log2": "log2({x})", "sqrt": "sqrt({x})", "rsqrt": "({t})1 / sqrt({x})",
    "rcp": "({t})1 / {x}", "relu": "maximum<{t}>({x}, 0)",
}  # fmt: skip
#: the single-precision functions have a name of their own
_SINGLE = {"fabs": "fabsf", "exp": "expf", "exp2": "exp2_ftz", "log": "logf", "log2": "log2f",
           "sqrt": "sqrtf"}  # fmt: skip


@EMIT.rule(TileMap)
def _map(e: Emitter, op: TileMap) -> None:
    e.whole_warp()
    kind = math_type(op.src.dtype)
    if op.op not in ("neg", "abs", "relu") and kind not in ("f32", "f64"):
        kind = "f64"
    x = widen(op.src.dtype, f"{name_of(e, op.src)}[i_]", e.use)
    if kind != math_type(op.src.dtype):
        x = f"({kind}){x}"
    text = _MAP[op.op].format(x=x, t=kind)
    if op.op == "relu":
        e.use("maximum")
    if op.op == "abs" and kind not in ("f32", "f64"):
        text = f"({x} < 0 ? -{x} : {x})"
    elif kind == "f32":
        for double, single in _SINGLE.items():
            text = text.replace(f"{double}(", f"{single}(", 1) if f"{double}(" in text else text
        if op.op == "exp2":
            e.use("exp2_ftz")
    with _loop(e, "i_", e.layout(op.dst).count):
        e.line(f"{name_of(e, op.dst)}[i_] = {narrow(op.dst.dtype, text, kind, e.use)};")


_ZIP = {"add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "div": "{a} / {b}",
        "min": "minimum<{t}>({a}, {b})", "max": "maximum<{t}>({a}, {b})"}  # fmt: skip


@EMIT.rule(TileZip)
def _zip(e: Emitter, op: TileZip) -> None:
    e.whole_warp()
    shape = e.layout(op.lhs)
    kind = math_type(op.lhs.dtype)
    rhs_kind = math_type(op.rhs.dtype) if isinstance(op.rhs, Fragment) else e.names.type_of(op.rhs)
    wide = isinstance(op.rhs, Fragment) and rhs_kind == "f64"
    if wide or ("f" not in kind and (op.op == "div" or "f" in rhs_kind)):
        kind = "f64"
    a = f"({kind}){widen(op.lhs.dtype, f'{name_of(e, op.lhs)}[i_]', e.use)}"
    b = _right(e, op.lhs, op.rhs, kind)
    if op.op in ("min", "max"):
        e.use(f"{op.op}imum")
    text = _ZIP[op.op].format(a=a, b=b, t=kind)
    with _loop(e, "i_", shape.count):
        e.line(f"{name_of(e, op.dst)}[i_] = {narrow(op.dst.dtype, text, kind, e.use)};")


@EMIT.rule(TileFma)
def _fma(e: Emitter, op: TileFma) -> None:
    e.whole_warp()
    b, c = (_right(e, op.a, operand, "f32") for operand in (op.b, op.c))
    with _loop(e, "i_", e.layout(op.a).count):
        e.line(f"{name_of(e, op.dst)}[i_] = fmaf({name_of(e, op.a)}[i_], {b}, {c});")


@EMIT.rule(TileTril)
def _tril(e: Emitter, op: TileTril) -> None:
    diagonal = e.cast(op.diagonal, "s32")
    _keep(e, op, lambda row, column: f"{column} - ({row}) <= {diagonal}")


@EMIT.rule(TileLeft)
def _left(e: Emitter, op: TileLeft) -> None:
    columns = e.cast(op.columns, "s32")
    _keep(e, op, lambda row, column: f"{column} < {columns}")


def _keep(e: Emitter, op: TileTril | TileLeft, kept: Callable[[str, str], str]) -> None:
    """The elements where ``kept`` of row and column is true, elsewhere the value."""
    e.whole_warp()
    source, target = name_of(e, op.src), name_of(e, op.dst)
    kind = math_type(op.dst.dtype)
    value = narrow(op.dst.dtype, f"({kind}){e.names.operand(op.value)}", kind, e.use)
    with _elements(e, e.layout(op.src)) as (register, row, column):
        here = kept(row, column)
        e.line(f"{target}[{register}] = {here} ? {source}[{register}] : {value};")


def _right(e: Emitter, lhs: Fragment, rhs: Fragment | Expr, kind: str) -> str:
    """The right operand of element ``i`` of ``lhs``, of C type ``kind``."""
    if isinstance(rhs, Fragment):
        return f"({kind}){widen(rhs.dtype, _right_element(e, lhs, rhs), e.use)}"
    return f"({kind}){e.names.operand(rhs)}"


def _right_element(e: Emitter, lhs: Fragment, rhs: Fragment) -> str:
    """The element of ``rhs`` that meets element ``i`` of the left operand."""
    shape, other, name = e.layout(lhs), e.layout(rhs), name_of(e, rhs)
    same = rhs.shape == lhs.shape and rhs.distribution == lhs.distribution
    if same:
        return f"{name}[i_]"
    if rhs.shape[0] == lhs.shape[0] and rhs.distribution == lhs.distribution:
        if shape.lanes:
            return f"{name}[0]"
        if not shape.warpgroup:
            return f"{name}[i_ / {shape.width}]"
        block = "" if shape.rows == 64 else f"2 * (i_ / {shape.block}) + "
        return f"{name}[{block}(i_ >> 1 & 1)]"
    if shape.lanes and not other.warpgroup:
        return f"{name}[0]" if other.single else f"__shfl_sync({FULL}, {name}[i_ / 32], i_ % 32)"
    if not shape.warpgroup:
        return f"{name}[{'0' if other.single else f'i_ % {shape.width}'}]"
    if other.single:
        return f"{name}[0]"
    within = "i_" if shape.rows == 64 else f"(i_ % {shape.block})"
    if other.row:
        return f"{name}[2 * ({within} >> 2) + (i_ & 1)]"
    if shape.row:
        within = "(2 * i_)"
    column = _column(shape, "i_", _lane(e))
    return f"__shfl_sync({FULL}, {name}[{within} >> 4], ({column}) & 31)"


@EMIT.rule(TileCast)
def _cast(e: Emitter, op: TileCast) -> None:
    e.whole_warp()
    x = widen(op.src.dtype, f"{name_of(e, op.src)}[i_]", e.use)
    kind, count = math_type(op.src.dtype), e.layout(op.dst).count
    if op.dst.dtype in (bf16, f16) and kind == "f32" and count % 2 == 0:
        function = f"f32_to_{op.dst.dtype}x2"
        e.use(function)
        y = widen(op.src.dtype, f"{name_of(e, op.src)}[i_ + 1]", e.use)
        e.line("#pragma unroll")
        with e.block(f"for (u32 i_ = 0; i_ < {count}; i_ += 2) {{"):
            e.line(f"{function}({name_of(e, op.dst)} + i_, {x}, {y});")
        return
    with _loop(e, "i_", count):
        e.line(f"{name_of(e, op.dst)}[i_] = {narrow(op.dst.dtype, x, kind, e.use)};")


def _combine(op: str, kind: str, a: str, b: str) -> str:
    return f"{a} + {b}" if op == "sum" else f"{op}imum<{kind}>({a}, {b})"


@EMIT.rule(TileReduce)
def _reduce(e: Emitter, op: TileReduce) -> None:
    e.whole_warp()
    shape, kind = e.layout(op.src), math_type(op.src.dtype)
    if op.op != "sum":
        e.use(f"{op.op}imum")
    if op.dst.shape[1] > 1:
        _reduce_within_thread(e, op, shape, kind)
        return
    with _loop(e, "row_", e.layout(op.dst).count):
        _reduce_row(e, op, shape, kind)
        value = narrow(op.dst.dtype, "total_", kind, e.use)
        e.line(f"{name_of(e, op.dst)}[row_] = {value};")


def _reduce_within_thread(e: Emitter, op: TileReduce, shape: Layout, kind: str) -> None:
    """To several columns, of which each thread holds its part of every one."""
    width, target = op.dst.shape[1], e.layout(op.dst)
    if shape.lanes:
        wide, narrow_, apart = shape.columns, width, width
    elif shape.warpgroup:
        wide, narrow_, apart = shape.block, target.block, width // 2
    else:
        wide, narrow_, apart = shape.width, target.width, width // 32
    first = f"i_ / {narrow_} * {wide} + i_ % {narrow_}"

    def element(register: str) -> str:
        return widen(op.src.dtype, f"{name_of(e, op.src)}[{register}]", e.use)

    with _loop(e, "i_", target.count):
        e.line(f"{kind} total_ = {element(first)};")
        e.line("#pragma unroll")
        with e.block(f"for (u32 n_ = 1; n_ < {shape.columns // width}; ++n_) {{"):
            part = element(f"{first} + n_ * {apart}")
            e.line(f"total_ = {_combine(op.op, kind, 'total_', part)};")
        e.line(f"{name_of(e, op.dst)}[i_] = {narrow(op.dst.dtype, 'total_', kind, e.use)};")


def _reduce_row(e: Emitter, op: TileReduce, shape: Layout, kind: str) -> None:
    """``total``: the reduction of one row, in every lane that holds a part of the row."""
    source = name_of(e, op.src)

    def element(register: str) -> str:
        return widen(op.src.dtype, f"{source}[{register}]", e.use)

    if shape.single:
        e.line(f"const {kind} total_ = {element('row_')};")
        return
    if shape.lanes:
        e.line(f"{kind} total_ = {element('0')};")
        with _loop(e, "c_", shape.columns - 1):
            e.line(f"total_ = {_combine(op.op, kind, 'total_', element('c_ + 1'))};")
        return
    if shape.warpgroup:
        block = "" if shape.rows == 64 else f"row_ / 2 * {shape.block} + "
        place = f"{block}4 * c_ + 2 * (row_ & 1)"
        first = f"{block}2 * (row_ & 1)"
        e.line(f"{kind} total_ = {element(first)};")
        e.line(f"total_ = {_combine(op.op, kind, 'total_', element(f'{first} + 1'))};")
        e.line("#pragma unroll")
        with e.block(f"for (u32 c_ = 1; c_ < {shape.columns // 8}; ++c_) {{"):
            e.line(f"total_ = {_combine(op.op, kind, 'total_', element(place))};")
            e.line(f"total_ = {_combine(op.op, kind, 'total_', element(f'{place} + 1'))};")
        widths = [2, 1]
    else:
        e.line(f"{kind} total_ = {element(f'row_ * {shape.width}')};")
        if shape.columns < 32:
            e.line(f"total_ = __shfl_sync({FULL}, total_, {_lane(e)} < {shape.columns} ? "
                   f"{_lane(e)} : 0);")  # fmt: skip
        e.line("#pragma unroll")
        with e.block(f"for (u32 c_ = 1; c_ < {shape.width}; ++c_) {{"):
            inside = f"if ({_lane(e)} + 32 * c_ < {shape.columns}) " if shape.columns % 32 else ""
            part = _combine(op.op, kind, "total_", element(f"row_ * {shape.width} + c_"))
            e.line(f"{inside}total_ = {part};")
        widths = [16, 8, 4, 2, 1]
        if shape.columns < 32 and op.op == "sum":
            e.line(f"if ({_lane(e)} >= {shape.columns}) total_ = 0;")
    for distance in widths:
        other = f"__shfl_xor_sync({FULL}, total_, {distance})"
        e.line(f"total_ = {_combine(op.op, kind, 'total_', other)};")
