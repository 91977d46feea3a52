"""The table of sentences is that of the code, and its sentences are plain."""

from __future__ import annotations

import ast

import pytest

from .table import DROPPED, MOST_WORDS, TABLE, _texts, parts, sentences

_HOW = (
    "look at each of these once (one fact, at most 25 words, the words of PTX, the thing as "
    "subject, what to do), then run python -m tests.sentences.table"
)


def test_every_sentence_has_been_looked_at() -> None:
    kept, now = set(TABLE.read_text().splitlines()), set(sentences())
    assert sorted(now - kept) == [], _HOW
    assert sorted(kept - now) == [], "python -m tests.sentences.table drops what is not printed"


def test_sentences_use_the_words_of_the_glossary() -> None:
    assert [line for line in sentences() if DROPPED.search(line.partition(": ")[2])] == []


def test_sentences_are_short() -> None:
    long = {
        line
        for line in sentences()
        for part in parts(line.partition(": ")[2])
        if len(part.split()) > MOST_WORDS
    }
    assert sorted(long) == []


FOUND = {
    '"""A docstring of words."""\nx: "a type of words" = "it is here"': ["it is here"],
    'raise Error(f"{a} waits for {b.label}" + f" in phase {c}")': [
        "{} waits for {}", " in phase {}",
    ],
    """f"it then {'waits for that' if a else 'goes on'}\"""": [
        "it then {}", "waits for that", "goes on",
    ],
    'say("two words " "of a text")': ["two words of a text"],
    're.compile("no sentence here")': [],
    'x["no sentence here"], "one", "{}", "mbarrier.arrive"': [],
}  # fmt: skip


@pytest.mark.parametrize("code", FOUND)
def test_what_is_found(code: str) -> None:
    assert sorted(_texts(ast.parse(code))) == sorted(FOUND[code])
