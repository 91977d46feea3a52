"""Writes ``docs/rules.md``: every rule that `docs/semantics.md` states, by its number, and the same
for ``tilesim explain A13`` into the package.

    python docs/generate_rules.py

Findings name rules such as A13; this page says what each of them is and where it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PAGE, SOURCE = FOLDER / "rules.md", FOLDER / "semantics.md"
DATA = FOLDER.parent / "tilesim" / "findings" / "numbered.json"
NUMBER = re.compile(r"\b([A-IU])(\d{1,2})\b(?: to \1?(\d{1,2})\b)?")
_HEADING = re.compile(r"## (?P<title>.+)")
_SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z`*])")
#: says that there are numbers
_NO_RULE = "These have numbers"
_HEAD = """# Rules by number

What a finding's number such as A13 stands for, in the words of [the semantics](semantics.md), which
has the context and the sources. A to H are rules, I limits of the targets, U points where the text
of the PTX ISA is silent or contradicts itself. `python docs/generate_rules.py` writes this page.
"""


def statements(text: str) -> Iterator[tuple[str, str]]:
    """(section, sentence) for all sentences, bullets and rows of tables, in order."""
    section = ""
    for block in re.split(r"\n\s*\n|\n(?=[*|#])", text):
        heading = _HEADING.match(block)
        if heading:
            section = heading["title"]
            continue
        if block.startswith(("```", "#")):
            continue
        line = " ".join(block.split())
        if line.startswith("|"):
            yield section, _row([cell.strip() for cell in line.strip("|").split("|")])
            continue
        for sentence in _SENTENCE.split(line.removeprefix("* ")):
            yield section, sentence


def _row(cells: list[str]) -> str:
    """A row of a table as a sentence; of the switches, what holds at each strictness."""
    if len(cells) == 4 and NUMBER.fullmatch(cells[3]):
        what, text, practice, point = cells
        return (
            f"{what[:1].upper()}{what[1:]} ({point}): at `ptx`, {text}. At `practice`, {practice}."
        )
    return ": ".join(cells[:1]) + "; " + "; ".join(cells[1:])


def rules(text: str) -> dict[str, list[tuple[str, str]]]:
    """What is said of each number, with the section it is said in."""
    found: dict[str, list[tuple[str, str]]] = {}
    for section, sentence in statements(text):
        for letter, first, last in NUMBER.findall(sentence):
            for number in range(int(first), int(last or first) + 1):
                found.setdefault(f"{letter}{number}", []).append((section, sentence))
    return found


def anchor(title: str) -> str:
    """The anchor of a heading, as MyST and GitHub make it."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def chosen(text: str) -> dict[str, tuple[str, list[str]]]:
    """By number in their order: the section that states a rule, and the first sentences there."""
    known = rules(text)
    found = {}
    for rule in sorted(known, key=lambda name: (name[0], int(name[1:]))):
        stated = [entry for entry in known[rule] if not entry[1].startswith(_NO_RULE)]
        known[rule] = stated or known[rule]
        own = [entry for entry in known[rule] if entry[0].startswith(f"{rule[0]}.")]
        whole = [entry for entry in own or known[rule] if not entry[1].endswith(":")]
        said = (whole or known[rule])[:2]
        found[rule] = said[0][0], [*dict.fromkeys(sentence for _, sentence in said)]
    return found


def page(text: str) -> str:
    """The page for the text of ``semantics.md``."""
    lines = [_HEAD]
    for rule, (section, said) in chosen(text).items():
        where = f"[{section}](semantics.md#{anchor(section)})"
        lines.append(f"## {rule}\n\n{' '.join(said)} ({where})\n")
    return "\n".join(lines)


def data(text: str) -> str:
    """The same as JSON."""
    return json.dumps(chosen(text), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(SOURCE.read_text()))
    DATA.write_text(data(SOURCE.read_text()))
