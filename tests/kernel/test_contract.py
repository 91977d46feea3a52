"""What the proof kernel is made of: its imports, its size, and that each of its rules is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from pathlib import Path

import pytest

import tests.kernel
from tests.ir.module_graph import graph, modules

MODULES = {name: path for name, path in modules().items() if name.startswith("tilesim.proof.")}
#: what the kernel and what finds proofs share: types and arithmetic, and `tilesim.ir` without what
#: analyses or builds programs: operands, effects, instructions, programs in machine form
DEFINITIONS = frozenset(
    f"tilesim.ir.{name}"
    for name in (
        "addressed", "addresses", "arithmetic", "declarations", "display", "effects", "expr",
        "fragments", "frozen", "layout", "loc", "mir", "op", "ops", "program", "scalars",
        "spelling", "target", "tensor_memory", "tensormap",
    )
)  # fmt: skip
SHARED = re.compile(r"tilesim\.(errors|records|arith\.\w+|ir\.ops\.\w+)")
#: what the plain form of PTX needs of `tilesim.ir` besides: encodings, static checks
PLAIN_DEFINITIONS = frozenset(
    f"tilesim.ir.{name}"
    for name in (
        "checks.declarations", "checks.launch", "elements", "instruction_descriptor", "registers",
    )
)  # fmt: skip
#: what reads a kernel in PTX and makes its plain form
PLAIN = frozenset({"tilesim.ptx.parser", "tilesim.ptx.plain"})
#: what reads the description of its launch
DESCRIBED = frozenset({"tilesim.ptx.description"})
#: lines of code: no blank lines, comments, docstrings and imports
MOST_CODE = 5_570
#: lines of a function that enforces a rule
MOST_OF_A_RULE = 30


def closure(start: Set[str]) -> set[str]:
    """Modules that are imported, directly or not; `tilesim` itself is a facade."""
    edges = graph(modules())
    found: set[str] = set()
    left = set(start)
    while left:
        module = left.pop()
        if module not in found and module != "tilesim":
            found.add(module)
            left |= edges[module]
    return found


def of_plain() -> frozenset[str]:
    """The modules of `tilesim.ptx` that a recheck of a kernel in PTX trusts."""
    return frozenset(m for m in closure(PLAIN | DESCRIBED) if m.startswith("tilesim.ptx."))


def test_it_imports_definitions_only() -> None:
    others = closure(set(MODULES)) - MODULES.keys() - DEFINITIONS - {"tilesim.proof"}
    assert not {m for m in others if not SHARED.fullmatch(m)}


def test_definitions_import_nothing_that_finds_proofs() -> None:
    below = closure({m for m in modules() if SHARED.fullmatch(m)} | set(DEFINITIONS))
    assert not {m for m in below - DEFINITIONS if not SHARED.fullmatch(m)}


def rules_of(node: ast.FunctionDef) -> list[ast.Call]:
    """The decorators that say which rules a function enforces."""
    return [
        d for d in node.decorator_list
        if isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id == "rule"
    ]  # fmt: skip


@pytest.mark.parametrize("path", MODULES.values(), ids=list(MODULES))
def test_a_rule_is_one_short_function(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef):
            continue
        if rules_of(node):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MOST_OF_A_RULE, node.name


def raised(node: ast.AST) -> list[str]:
    """The rules by which something refutes."""
    return [
        ast.literal_eval(call.args[0]) for call in ast.walk(node) if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name) and call.func.id == "Refuted"
    ]  # fmt: skip


@pytest.mark.parametrize("path", MODULES.values(), ids=list(MODULES))
def test_what_refutes_is_the_function_of_that_rule(path: Path) -> None:
    tree = ast.parse(path.read_text())
    at_home = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            own = [ast.literal_eval(d.args[0]) for d in rules_of(node)]
            assert set(raised(node)) <= set(own) or not own, node.name
            at_home += raised(node) if own else []
    assert sorted(at_home) == sorted(raised(tree))


def code_lines(path: Path) -> int:
    """Lines of a module that are code."""
    text = path.read_text()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom):
            continue
        if not isinstance(node, ast.Expr) or isinstance(node.value, ast.Constant):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        1 for n, line in lines if line.strip() and line.strip()[0] != "#" and n not in left_out
    )


def test_it_is_small() -> None:
    assert sum(map(code_lines, MODULES.values())) <= MOST_CODE


def test_each_file_of_these_tests_is_in_the_table() -> None:
    table = re.findall(r"^ {4}(\w+(?:\.json)?) {2,}\S", tests.kernel.__doc__ or "", re.MULTILINE)
    files = Path(__file__).parent.iterdir()
    names = {f.stem if f.suffix == ".py" else f.name for f in files if f.suffix in (".py", ".json")}
    assert sorted(table) == sorted(names - {"__init__"})
