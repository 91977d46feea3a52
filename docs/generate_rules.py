"""Writes what `docs/semantics.md` says of each rule number, for ``tilesim explain A13``.

    python docs/generate_rules.py

It puts an anchor before the place that states each number into the page as well, for links such as
``semantics#a13`` in reports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "semantics.md"
DATA = FOLDER.parent / "tilesim" / "findings" / "numbered.json"
NUMBER = re.compile(r"\b([A-IU])(\d{1,2})\b(?: to \1?(\d{1,2})\b)?")
_HEADING = re.compile(r"## (?P<title>.+)")
_SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z`*])")
#: says that there are numbers
_NO_RULE = "A rule is stated by the text, derived"
#: in Markdown: how a paragraph begins, links, and what is bold
_LEAD, _LINK, _BOLD = re.compile(r"^\*\*[\w ]+\.\*\* "), re.compile(r"\[([^]]*)\]\([^)]*\)"), "**"
#: of a place that states a rule; the text of rules is without
_ANCHOR = re.compile(r"<a id=\w+></a>")


def statements(text: str) -> Iterator[tuple[str, str]]:
    """(section, sentence) for all sentences, bullets and rows of tables, in order."""
    section = ""
    for block in re.split(r"\n\s*\n|\n(?=[*|#])", _ANCHOR.sub("", text)):
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


def anchored(text: str) -> str:
    """The page with an anchor before the place that states each rule: the first of its section, or
    of the page."""
    text = _ANCHOR.sub("", text)
    own: dict[str, int] = {}
    other: dict[str, int] = {}
    section, begins = "", 0
    for line in text.splitlines(keepends=True):
        heading = _HEADING.match(line)
        section = heading["title"] if heading else section
        for found in NUMBER.finditer(line) if section else ():
            letter, first, last = found.groups()
            places = own if section.startswith(f"{letter}.") else other
            for number in range(int(first), int(last or first) + 1):
                places.setdefault(f"{letter}{number}", begins + found.start())
        begins += len(line)
    for rule, place in sorted((other | own).items(), key=lambda item: (-item[1], item[0])):
        text = f"{text[:place]}<a id={rule.lower()}></a>{text[place:]}"
    return text


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
        found[rule] = said[0][0], [*dict.fromkeys(_plain(sentence) for _, sentence in said)]
    return found


def _plain(sentence: str) -> str:
    """A sentence as a terminal shows it."""
    return _LINK.sub(r"\1", _LEAD.sub("", sentence)).replace(_BOLD, "")


def data(text: str) -> str:
    """What the page says of each number, as JSON."""
    return json.dumps(chosen(text), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SOURCE.write_text(anchored(SOURCE.read_text()))
    DATA.write_text(data(SOURCE.read_text()))
