"""The DSL as a user meets it: documentation of methods, handles alike, wrong kinds of operands."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilesim as ts
from tilesim import dsl
from tilesim.dsl import builder
from tilesim.dsl.methods import Namespace, recorded
from tilesim.errors import InvalidProgram
from tilesim.ir import declarations, tensor_memory
from tilesim.ir.declarations import View
from tilesim.ir.ops import tcgen05_mma, tma

NAMESPACES = {n: v for n, v in vars(ts.Builder("all")).items() if isinstance(v, Namespace)}
METHODS = {
    f"{name}.{method}": function
    for name, namespace in NAMESPACES.items()
    for method, function in vars(type(namespace)).items()
    if not method.startswith("_")
}


#: where the methods of the builder and of what it gives are written; `copy_cluster` only says in a
#: protocol what it needs of a builder
WRITTEN = [
    *sorted(p for p in Path(dsl.__file__).parent.glob("*.py") if p.name != "copy_cluster.py"),
    *(Path(module.__file__ or "") for module in (builder, declarations, tensor_memory)),
]


def emitted(method: Callable[..., Any]) -> set[str]:
    """Names of the instruction classes that the code of a method passes to ``emit``."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    appended = [
        call.args[0].func
        for call in calls
        if ast.unparse(call.func) == "self._k.emit" and isinstance(call.args[0], ast.Call)
    ]
    return {ast.unparse(name).rpartition(".")[2] for name in appended}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_is_documented(method: Callable[..., Any]) -> None:
    text = inspect.getdoc(method)
    assert text, "no docstring: use @records(Instruction)"
    assert text[0].isupper() or text[0] in "`", text


def test_methods_of_the_builder_are_documented() -> None:
    methods = {n: f for n, f in vars(ts.Builder).items() if callable(f) and not n.startswith("_")}
    assert [name for name, function in methods.items() if not inspect.getdoc(function)] == []


@pytest.mark.parametrize("name", METHODS)
def test_documentation_is_of_the_instruction_that_is_recorded(name: str) -> None:
    method = METHODS[name]
    declared = {op.__name__ for op in recorded(method)}
    found = emitted(method)
    if name == "cluster.sync":  # calls methods that are made from definitions
        found = {"ClusterArrive", "ClusterWait"}
    assert declared == found


def test_a_method_has_the_details_of_its_instruction() -> None:
    k = ts.Builder("reader")
    assert (inspect.getdoc(k.tma.load) or "").split() == (inspect.getdoc(tma.TmaLoad) or "").split()
    assert "coords" in (k.tma.load.__doc__ or "")


@pytest.mark.parametrize("file", sorted((Path(ts.__file__).parent / "lib").glob("*.py")) + WRITTEN)
def test_editors_show_the_text_of_every_method(file: Path) -> None:
    """They read the source and run nothing."""
    classes = [n for n in ast.parse(file.read_text()).body if isinstance(n, ast.ClassDef)]
    methods = [
        f"{cls.name}.{method.name}"
        for cls in classes
        for method in cls.body
        if isinstance(method, ast.FunctionDef)
        and not cls.name.startswith("_") and not method.name.startswith("_")
        and not ast.get_docstring(method)
    ]  # fmt: skip
    assert methods == []


def test_a_method_that_refers_to_its_instruction_has_the_details() -> None:
    text = inspect.getdoc(ts.Builder("reader").tcgen05.mma_sp) or ""
    assert text.startswith("`mma` with the zeros of A left out, half of every row.\n\n")
    assert (inspect.getdoc(tcgen05_mma.Tcgen05MmaSp) or "").partition("\n\n")[2] in text


# ---------------------------------------------------------------------- handles


def test_one_mbarrier_is_used_like_an_element_of_an_array() -> None:
    k = ts.Builder("cluster")
    one, several = k.mbarriers("one"), k.mbarriers("several", 3)
    assert one.at(k.cluster_rank) == one[0].at(k.cluster_rank)
    assert [str(b) for b in several] == ["several[0]", "several[1]", "several[2]"]
    assert (len(one), len(several)) == (1, 3)


def test_a_peer_of_several_mbarriers_needs_an_index() -> None:
    several = ts.Builder("cluster").mbarriers("several", 3)
    with pytest.raises(InvalidProgram, match=r"test_dsl.py:\d+: several has 3 mbarriers"):
        several.at(1)


def test_a_tensor_is_used_like_its_view() -> None:
    k = ts.Builder("cluster")
    s = k.shared("s", ts.f32, (2, 8))
    assert s.at(1) == s[...].at(1) == s.view().at(1)
    assert list(s) == list(s[...]) == [s[0], s[1]]
    assert len(s) == len(s[...]) == 2
    with pytest.raises(TypeError, match=r"s\[0, 3\] is one element"):
        len(s[0, 3])


def test_rows_of_tensor_memory() -> None:
    tmem = ts.Builder("k", target="sm_100a").tcgen05.tensor(0, ts.f32, (4, 8))
    assert list(tmem) == [tmem[i] for i in range(4)]
    assert len(tmem) == 4


@pytest.mark.parametrize("view", [lambda X: X, lambda X: X[0]])
def test_global_memory_has_no_peer(view: Callable[[ts.GlobalTensor], View]) -> None:
    X = ts.Builder("cluster").tensor("X", ts.f32, (2, 8))
    with pytest.raises(InvalidProgram, match=r"test_dsl.py:\d+: X is in global memory"):
        view(X).at(1)


# ---------------------------------------------------------------------- kinds of operands


class Handles:
    """One of everything, in a Blackwell kernel."""

    def __init__(self) -> None:
        k = self.k = ts.Builder("everything", target="sm_100a")
        self.X = k.tensor("X", ts.bf16, (64, 64))
        self.map = k.tensor_map(self.X, (64, 64))
        self.s = k.shared("s", ts.bf16, (64, 64))
        self.b = k.mbarriers("b")
        self.f = k.fragment("f", ts.bf16, (16, 64))
        self.v = k.var("v", 0)
        self.tmem = k.tcgen05.tensor(0, ts.f32, (128, 64))


#: what is written -> the error
WRONG: dict[str, str] = {
    "k.tma.load(h.X, h.s, (0, 0), h.b)":
        "map of cp.async.bulk.tensor.load is GlobalTensor X, not a tensor map",
    "k.tma.load(h.map, h.map, (0, 0), h.b)": "TensorMap X_map is not a tensor or a slice of one",
    "k.tma.load(h.map, h.s, 0, h.b)": "the coordinates are 0, not a tuple of one per dimension",
    "k.tma.load(h.map, h.s, (0, 0), h.v)": "Var %v is not an mbarrier",
    "k.tma.load(h.map, h.s, (0, 0), h.b, cta_group=3)": "cta_group of .* is 3, not 1 or 2",
    "k.tile.load(h.s, h.f)": "Fragment #f is not a tensor or a slice of one",
    "k.tile.load(h.s, h.s)": "dst of tile.load is SharedTensor s, not a fragment",
    "k.tile.zip(h.f, 'plus', h.f, 1)": "op of tile.zip is 'plus', not 'add' or 'sub' or",
    "k.bar.sync(1, threads=1.5)": "barrier.sync: threads 1.5 is a floating-point number",
    "k.mbarrier.arrive(h.b, sem='weak')": "sem of mbarrier.arrive is 'weak', not 'release' or 'rel",
    "k.mbarrier.arrive(h.b, token=3)": "token of mbarrier.arrive is 3, not a variable or None",
    "k.tcgen05.ld(h.f, h.s)": "src of tcgen05.ld is SharedTensor s, not tensor memory",
    "k.tcgen05.ld(h.f, 0)": "src of tcgen05.ld is 0, not tensor memory",
    "k.tcgen05.mma(h.tmem, h.s, h.s, disable_output_lane=('a',))": "not a tuple of integers",
    "k.fragment('g', 'bf61', (16, 16))": "dtype of fragment g is 'bf61', not a type of elements",
    "k.scalar('n', None)": "value of scalar n is None, not an integer",
    "k.var('w', 0, h.s)": "dtype of variable w is SharedTensor s, not a type of elements",
}  # fmt: skip


@pytest.mark.parametrize("call", WRONG)
def test_operand_of_a_wrong_kind(call: str) -> None:
    h = Handles()
    with pytest.raises(InvalidProgram) as refused:
        eval(call, {"k": h.k, "h": h})
    (diagnostic,) = refused.value.diagnostics
    assert re.search(WRONG[call], diagnostic.message), diagnostic.message
    assert diagnostic.loc.file == "<string>"


def test_operands_of_the_right_kind_are_taken() -> None:
    h = Handles()
    h.k.tma.load(h.map, h.s, (h.v, 0), h.b, multicast=1, cta_group=2)
    h.k.bar.sync(1, threads=64, aligned=False)
    assert len(h.k.finish().body) == 3


def test_handle_in_place_of_a_number() -> None:
    h = Handles()
    with pytest.raises(TypeError, match="expected an integer or an expression, got GlobalTensor X"):
        eval("h.k.mbarrier.init(h.b, h.X)", {"h": h})
