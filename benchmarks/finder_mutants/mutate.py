"""One change at one place of one module, drawn over its syntax tree."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import CodeType, ModuleType

#: comparisons, and what each is replaced by
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
#: operators, and what each is replaced by
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
#: functions of Python, and what each is replaced by
FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutant:
    """The change number ``number`` of those that `changes` makes of a module's file."""

    module: str
    number: int
    line: int
    says: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.says}"


def file_of(module: str) -> Path:
    """The file of a module of this project; it is not imported."""
    return Path(*module.split(".")).with_suffix(".py")


def mutants(module: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    tree = ast.parse(file_of(module).read_text())
    return [Mutant(module, n, line, says) for n, (line, says, _) in enumerate(changes(tree))]


def drawn(modules: Sequence[str], number: int, seed: int) -> list[Mutant]:
    """``number`` different mutants of these modules, each place of which is as likely."""
    every = [mutant for module in modules for mutant in mutants(module)]
    return Random(seed).sample(every, min(number, len(every)))


def changed(mutant: Mutant) -> ast.Module:
    """The module's tree with the mutant's change."""
    tree = ast.parse(file_of(mutant.module).read_text())
    for n, (_, _, change) in enumerate(changes(tree)):
        if n == mutant.number:
            change.apply()
            return ast.fix_missing_locations(tree)
    raise ValueError(f"{mutant.module} has no change {mutant.number}")


@dataclass(frozen=True)
class Change:
    """A field of a node (an element of it, if it is a list) that gets another value."""

    owner: ast.AST
    field: str
    index: int | None
    new: object

    def apply(self) -> None:
        """Changes the tree."""
        if self.index is None:
            setattr(self.owner, self.field, self.new)
        else:
            getattr(self.owner, self.field)[self.index] = self.new


def changes(tree: ast.Module) -> Iterator[tuple[int, str, Change]]:
    """The line, the description and the change of each mutant: bodies of functions only, without
    docstrings, annotations, defaults, messages of errors and assertions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not _is_text(node):
            yield from _of_block(node, "body")


def _is_text(function: ast.FunctionDef) -> bool:
    """Whether a function only says or shows something."""
    return function.name in ("__str__", "__repr__", "__hash__", "describe")


def _of_block(owner: ast.AST, field: str) -> Iterator[tuple[int, str, Change]]:
    for index, statement in enumerate(getattr(owner, field)):
        match statement:
            case ast.Expr(value=ast.Constant()) | ast.Raise() | ast.Assert() | ast.Import():
                continue
            case ast.FunctionDef() | ast.ClassDef() | ast.ImportFrom() | ast.Pass():
                continue
            case ast.Expr(value=ast.Call()):
                yield statement.lineno, f"without {_text(statement)}", Change(
                    owner, field, index, ast.Pass()
                )  # fmt: skip
                yield from _of_expression(statement, "value", None)
            case ast.AugAssign():
                yield statement.lineno, f"without {_text(statement)}", Change(
                    owner, field, index, ast.Pass()
                )  # fmt: skip
                yield from _of_expression(statement, "value", None)
            case ast.If() | ast.While():
                yield from _negated(statement)
                yield from _of_expression(statement, "test", None)
                yield from _of_block(statement, "body")
                yield from _of_block(statement, "orelse")
            case ast.For():
                yield from _of_expression(statement, "iter", None)
                yield from _of_block(statement, "body")
            case ast.With():
                yield from _of_block(statement, "body")
            case ast.Try():
                yield from _of_block(statement, "body")
                for handler in statement.handlers:
                    yield from _of_block(handler, "body")
            case ast.Match():
                for case in statement.cases:
                    if case.guard is not None:
                        yield from _of_expression(case, "guard", None)
                    yield from _of_block(case, "body")
            case ast.Continue():
                yield statement.lineno, "without continue", Change(owner, field, index, ast.Pass())
            case ast.Return(value=ast.expr()) | ast.Assign() | ast.AnnAssign(value=ast.expr()):
                yield from _of_expression(statement, "value", None)


def _negated(statement: ast.If | ast.While) -> Iterator[tuple[int, str, Change]]:
    never = ast.Constant(value=False)
    yield statement.lineno, f"never: if {_text(statement.test)}", Change(
        statement, "test", None, never
    )  # fmt: skip
    if isinstance(statement, ast.If):
        always = ast.Constant(value=True)
        yield statement.lineno, f"always: if {_text(statement.test)}", Change(
            statement, "test", None, always
        )  # fmt: skip


def _of_expression(
    owner: ast.AST, field: str, index: int | None
) -> Iterator[tuple[int, str, Change]]:
    node = getattr(owner, field)
    node = node if index is None else node[index]
    if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr | ast.Lambda):
        return
    yield from _here(node, owner, field, index)
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "func", "op", "ops"):
            continue
        if isinstance(value, list):
            for n, element in enumerate(value):
                if isinstance(element, ast.AST):
                    yield from _of_expression(node, name, n)
        elif isinstance(value, ast.AST):
            yield from _of_expression(node, name, None)


def _here(
    node: ast.AST, owner: ast.AST, field: str, index: int | None
) -> Iterator[tuple[int, str, Change]]:
    match node:
        case ast.Compare(ops=[op], lineno=line) if type(op) in COMPARISONS:
            new: ast.AST = ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.BoolOp(lineno=line):
            for value in node.values:
                left = [other for other in node.values if other is not value]
                rest = left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
                says = f"without {_text(value)} in {_text(node)}"
                yield line, says, Change(owner, field, index, rest)
            return
        case ast.UnaryOp(op=ast.Not(), lineno=line):
            new = node.operand
        case ast.BinOp(lineno=line) if type(node.op) in OPERATORS:
            new = ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.Call(func=ast.Name(id=name), lineno=line) if name in FUNCTIONS:
            new = ast.Call(ast.Name(FUNCTIONS[name], ast.Load()), node.args, node.keywords)
        case ast.Constant(value=bool(value), lineno=line):
            new = ast.Constant(not value)
        case ast.Constant(value=int(value), lineno=line):
            new = ast.Constant(value + 1)
        case ast.comprehension(ifs=[test]):
            yield test.lineno, f"without if {_text(test)}", Change(node, "ifs", None, [])
            return
        case ast.IfExp(lineno=line):
            yield line, f"always {_text(node.body)}", Change(owner, field, index, node.body)
            yield line, f"always {_text(node.orelse)}", Change(owner, field, index, node.orelse)
            return
        case _:
            return
    yield line, f"{_text(node)} -> {_text(new)}", Change(owner, field, index, new)


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


class Finder(importlib.machinery.PathFinder):
    """Imports one module as the mutant's tree says, all others as they are."""

    mutant: Mutant

    @classmethod
    def install(cls, mutant: Mutant) -> None:
        """Has the mutant imported from here on.

        Raises:
            RuntimeError: its module has been imported already.
        """
        if mutant.module in sys.modules:
            raise RuntimeError(f"{mutant.module} has been imported")
        cls.mutant = mutant
        sys.meta_path.insert(0, cls)

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's specification, with a loader that compiles the changed tree."""
        if fullname != cls.mutant.module:
            return None
        place = str(file_of(fullname).resolve())
        return importlib.util.spec_from_file_location(
            fullname, place, loader=_Loader(fullname, place)
        )


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(changed(Finder.mutant), self.path, "exec")
        return code
