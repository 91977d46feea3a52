"""What findings state is data: no code that looks for causes, repairs or stories reads English."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilesim

ROOT = Path(tilesim.__file__).parent
#: packages whose code gets findings
PACKAGES = ("mistakes", "repair", "report", "fuzz")
#: attributes of findings, their participants and causes that are made to be read
TEXTS = frozenset({"message", "action", "notes", "cause", "fix"})
#: what looks for something in a text, or takes a part: methods of strings, functions of `re`
SEARCHES = frozenset({
    "startswith", "endswith", "find", "rfind", "index", "rindex", "count", "partition",
    "rpartition", "split", "rsplit", "replace", "removeprefix", "removesuffix",
    "search", "match", "fullmatch", "findall", "finditer", "sub", "subn",
})  # fmt: skip


def searches(source: str) -> Iterator[int]:
    """The lines that search in an attribute `TEXTS`, in what a line takes out of one, or in what a
    loop or an assignment binds to one."""
    tree = ast.parse(source)
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.For(target=ast.Name(id=name), iter=value)
                | ast.comprehension(target=ast.Name(id=name), iter=value)
                | ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value)
            ) if _has_text(value, names):
                names.add(name)
            case _:
                pass
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
                within: list[ast.expr] = [left, right]
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args) if (
                attr in SEARCHES
            ):
                within = [value, *args]
            case ast.Subscript(value=value, slice=ast.Slice()) if not _of_notes(value):
                within = [value]
            case _:
                continue
        if any(_has_text(value, names) for value in within):
            yield node.lineno


def _has_text(node: ast.expr, names: set[str]) -> bool:
    return any(
        (isinstance(n, ast.Attribute) and n.attr in TEXTS)
        or (isinstance(n, ast.Name) and n.id in names)
        for n in ast.walk(node)
    )


def _of_notes(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "notes"


def test_no_code_searches_in_the_texts_of_findings() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert [f"{f}:{line}" for f in files for line in searches(f.read_text())] == []


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ('"not freed" in case.finding.message', True),
        ("PATTERN.search(case.finding.message)", True),
        ('re.match(r"(\\d+) lanes", case.finding.message)', True),
        ('any("publish no memory" in note for note in case.finding.notes)', True),
        ('said = case.finding.message; said.replace("CTA", "")', True),
        ('[p.action for p in case.finding.participants][0].startswith("reads")', True),
        ("case.finding.cause[:40]", True),
        ('case.finding.kind == "tmem-lifetime/not-freed"', False),
        ('f"{case.finding.rule}: {case.finding.message}"', False),
        ("case.finding.notes[:3]", False),
        ("case.finding.message == case.other.message", False),
        ('"race" in case.rules', False),
    ],
)
def test_what_reads_a_text_is_found(line: str, reads: bool) -> None:
    assert [*searches(line)] == [1] * reads
