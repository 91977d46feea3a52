"""Hypothesis strategies for expressions, and for instructions of every class from their fields."""

from __future__ import annotations

from itertools import combinations
from types import NoneType
from typing import Any, get_args

import hypothesis.strategies as st

from tilesim.arith.types import DTYPES, DType, bf16, f32, pred, u8, u32
from tilesim.ir.declarations import (
    Fragment,
    GlobalTensor,
    Mbar,
    Mbarriers,
    SharedTensor,
    TensorMap,
    View,
)
from tilesim.ir.expr import (
    SPECIALS,
    Binary,
    BinaryOp,
    Const,
    Expr,
    ScalarParam,
    Select,
    Special,
    Unary,
    UnaryOp,
    Var,
)
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.ops.tcgen05_mma import Tcgen05Product
from tilesim.ir.program import Program, Stmt
from tilesim.ir.target import TARGETS, Target
from tilesim.ir.text.forms import Choice, Either, Fixed, Form, Inline, Leaf, Many, operands

# names that look like words of the text form must not be mistaken for them
VARIABLES = (Var("i"), Var("p", pred), Var("min", u32), Var("release"), Var("warp_id"), Var("none"))
SCALARS = (ScalarParam("n", 7), ScalarParam("true", -3, u32))
TENSORS = (GlobalTensor("A", bf16, (256, 64)), GlobalTensor("for", f32, (8,), (2,), True))
SHARED = (
    SharedTensor("sA", bf16, (2, 64, 64), 128, align=1024),
    SharedTensor("tile.x", u8, (4, 16), pitch=32, offset=65536),
)
BARRIERS = (Mbarriers("full", 4), Mbarriers("`odd`\n", 2, offset=8))
MAPS = (TensorMap("A_map", TENSORS[0], (64, 64), 128, (1, 1), "nan"),)
FRAGMENTS = (Fragment("acc", f32, (64, 128), "warpgroup"), Fragment("add", bf16, (16, 64)))
PLACES = (Loc("kernel.py", 12, "build"), Loc("kernel.py", 13), Loc('a "b"\\c\n.py', 1, "<module>"))


def program(*body: Stmt) -> Program:
    """A program with every declaration above."""
    return Program(
        name="generated",
        target=TARGETS["sm_100a"],
        warps=4,
        params=(*TENSORS, *SCALARS),
        maps=MAPS,
        shared=(*SHARED, *BARRIERS),
        fragments=FRAGMENTS,
        variables=VARIABLES,
        body=body,
    )


INTEGERS = st.integers(-(2**63), 2**64 - 1)
LITERALS = st.one_of(st.booleans(), st.integers(-4, 4), INTEGERS, st.floats())
LEAVES: st.SearchStrategy[Expr] = st.one_of(
    LITERALS.map(Const),
    st.sampled_from([*VARIABLES, *SCALARS]),
    st.sampled_from([Special(name) for name in SPECIALS]),
)


def _larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Unary, st.sampled_from(get_args(UnaryOp)), inner),
        st.builds(Binary, st.sampled_from(get_args(BinaryOp)), inner, inner),
        st.builds(Select, inner, inner, inner),
    )


EXPRESSIONS = st.recursive(LEAVES, _larger, max_leaves=12)
SHORT = st.recursive(LEAVES, _larger, max_leaves=3)


@st.composite
def views(draw: st.DrawFn, rank: int | None = None) -> View:
    """A view of any tensor, of ``rank`` dimensions (None: any); a dimension is kept or indexed
    away."""
    tensors = [t for t in (*TENSORS, *SHARED) if len(t.shape) >= (rank or 0)]
    tensor = draw(st.sampled_from(tensors))
    every = range(len(tensor.shape))
    ranks = [*range(len(every) + 1)] if rank is None else [rank]
    kept = draw(st.sampled_from([c for n in ranks for c in combinations(every, n)]))
    offsets, extents = [], []
    for dim, extent in enumerate(tensor.shape):
        whole = draw(st.booleans())
        offsets.append(Const(0) if whole else draw(SHORT))
        extents.append((extent if whole else draw(st.integers(1, 300))) if dim in kept else 1)
    cta = draw(st.none() | SHORT)
    return View(tensor, tuple(offsets), tuple(extents), kept, cta)


@st.composite
def mbars(draw: st.DrawFn) -> Mbar:
    """An mbarrier; a constant index is inside its array."""
    array = draw(st.sampled_from(BARRIERS))
    index = draw(st.integers(0, array.count - 1).map(Const) | st.just(VARIABLES[0] + 1))
    return Mbar(array, index, draw(st.none() | SHORT))


Leaves = dict[type, st.SearchStrategy[Any]]
LEAF_VALUES: Leaves = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: INTEGERS,
    float: st.floats(),
    str: st.text(max_size=8),
    DType: st.sampled_from(list(DTYPES.values())),
    Target: st.sampled_from(list(TARGETS.values())),
    Expr: SHORT,
    Var: st.sampled_from(VARIABLES),
    ScalarParam: st.sampled_from(SCALARS),
    View: views(),
    GlobalTensor: st.sampled_from(TENSORS),
    SharedTensor: st.sampled_from(SHARED),
    Mbar: mbars(),
    Mbarriers: st.sampled_from(BARRIERS),
    TensorMap: st.sampled_from(MAPS),
    Fragment: st.sampled_from(FRAGMENTS),
}
#: the same for instructions whose views are matrices
OF_MATRICES = LEAF_VALUES | {View: views(rank=2)}


def values(form: Form, leaves: Leaves = LEAF_VALUES) -> st.SearchStrategy[Any]:
    """Values of a form."""
    match form:
        case Leaf(type=leaf):
            return leaves[leaf]
        case Choice(values=choices):
            return st.sampled_from(choices)
        case Many(element=element):
            return st.lists(values(element, leaves), max_size=4).map(tuple)
        case Fixed(elements=elements):
            return st.tuples(*(values(e, leaves) for e in elements))
        case Inline(type=cls):
            return records(cls)
        case Either(members=members):
            return st.one_of(*(values(m, leaves) for m in members))


def records(cls: type, leaves: Leaves = LEAF_VALUES, **fixed: Any) -> st.SearchStrategy[Any]:
    """Instances of a dataclass with any operands of the right types."""
    required = {o.name: values(o.form, leaves) for o in operands(cls) if o.required}
    optional = {o.name: values(o.form, leaves) for o in operands(cls) if not o.required}
    chosen = st.fixed_dictionaries(required, optional=optional)
    return chosen.map(lambda given: cls(**given, **fixed))


def instructions(cls: type[Op]) -> st.SearchStrategy[Op]:
    """An instruction with any operands; defaults are left out sometimes."""
    leaves = OF_MATRICES if issubclass(cls, Tcgen05Product) else LEAF_VALUES
    return st.sampled_from(PLACES).flatmap(lambda place: records(cls, leaves, loc=place))
