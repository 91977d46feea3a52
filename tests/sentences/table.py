"""The sentences that tilesim prints, as a table: ``python -m tests.sentences.table`` writes it.

A sentence is a string in the code of the packages that say what is wrong with a kernel, and of
those that report it; what is put into it is ``{}``. Each line of the table has been looked at:
technical English in the words of PTX, one fact, at most `MOST_WORDS` words between two stops, the
thing as subject, and for a fix what to do. Read the new lines before you commit the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("table.txt")
#: words between two of ``.``, ``;`` and ``:``, at most
MOST_WORDS = 25
#: all packages but the gallery of kernels, which has names of rows
PACKAGES = (
    "analysis", "autopsy", "capture", "checker", "cli", "conform", "cubin", "cute", "cutile",
    "dsl", "export", "findings", "fuzz", "gpu", "ir", "lib", "loader", "lsp", "mcp", "mistakes",
    "predict", "proof", "ptx", "recording", "repair", "report", "sim", "strategies", "tilelang",
    "tilus", "transforms", "translation", "triton", "errors.py", "files.py", "formats.py",
    "layout.py", "limits.py", "mark.py", "parallel.py", "wording.py",
)  # fmt: skip
#: words that sentences do without
DROPPED = re.compile(
    r"\b(who|whom|nobody|whoever|somebody|anybody|everybody|no one|anyone|someone|perhaps|any more"
    r"|anymore|turns?|doubts?|blames?|alike|vouch\w*|touch\w*|goes? round|hand\w* on)\b"
)
#: arguments that are no sentences of a report: regular expressions, types, the help of commands
_NOT_PRINTED = frozenset({
    "re.compile", "cast", "TypeVar", "source", "swap", "click.option", "click.argument", "_option",
})  # fmt: skip
_WORD = re.compile(r"[A-Za-z]{2,}")
#: a clause: two words beside each other, or one beside what is put in
_CLAUSE = re.compile(r"[A-Za-z}][,:;]? (?:[a-z]{2,}|\{)")
#: markup, styles, programs
_CODE = re.compile(
    r"</|/>|^\s*<|\w \{[ \n]|;\s*$|;\n|^\n?    |\b(?:def|import) \w+[(\s]|^[a-z]+\[|\\n"
    r"|^#|/\*|__\w+\(|__grid|__shared__|__launch|\\d|\bvolatile\b"
)


@cache
def sentences() -> tuple[str, ...]:
    """The lines of the table: a file and a sentence of it, in order."""
    found: list[str] = []
    for package in PACKAGES:
        where = ROOT / "tilesim" / package
        for path in [where] if where.is_file() else sorted(where.rglob("*.py")):
            name = path.relative_to(ROOT / "tilesim").as_posix()
            every = {" ".join(text.split()) for text in _texts(ast.parse(path.read_text()))}
            found += (f"{name}: {text}" for text in sorted(every))
    return tuple(found)


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in _printed(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if len(_WORD.findall(text)) > 1 and _CLAUSE.search(text) and not _CODE.search(text):
            yield text


def _printed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may be printed: no docstrings, no types, no parts of f-strings."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func).lstrip("_") in _NOT_PRINTED:
            continue
        yield node
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns") or (field == "slice" and _is_text(value)):
                continue
            if isinstance(node, ast.JoinedStr):
                left += (part.value for part in node.values if isinstance(part, ast.FormattedValue))
                continue
            children = value if isinstance(value, list) else [value]
            left += (child for child in children if isinstance(child, ast.AST))


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def parts(sentence: str) -> list[str]:
    """What stands between two stops."""
    return re.split(r"[.;:](?:\s|$)", sentence)


def main() -> None:
    """Writes the table. Read its diff before you commit it."""
    TABLE.write_text("".join(f"{line}\n" for line in sentences()))


if __name__ == "__main__":
    main()
