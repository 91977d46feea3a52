"""Pages on rules, as texts: what a finding means, an example and its fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from textwrap import indent, wrap
from typing import Any

from tilesim.checker.assumptions import ASSUMPTIONS, SWITCHES
from tilesim.dsl.kernel import public
from tilesim.errors import UsageError
from tilesim.findings.rules import RULE_DOCS, RuleDoc, numbered
from tilesim.layout import PLAIN, Style

#: how a proof that leans on something becomes an error
_DENY = "tilesim check --deny {} takes a proof that leans on it for an error."
_NUMBER = re.compile(r"[A-Ia-iUu]\d{1,2}")


@public
def explain(rule: str = "") -> str:
    """What a rule means, an example and its fix: of a finding (``"deadlock"``) or a number that
    findings name (``"A13"``); without one the list of findings.

    Raises:
        UsageError: there is no such rule.
    """
    return "\n".join(pages(rule) if rule else listing())


def pages(rule: str, style: Style = PLAIN) -> Iterator[str]:
    """The lines of the page on a rule; raises like `explain`."""
    known = numbered() if _NUMBER.fullmatch(rule) else {}
    if rule.upper() in known:
        yield from _number(rule.upper(), *known[rule.upper()], style)
    elif rule in ASSUMPTIONS and rule not in RULE_DOCS:
        yield from _assumption(rule, style)
    else:
        yield from _page(_find(rule), style)


def rule_json(rule: str) -> dict[str, Any]:
    """What `pages` says of a rule, as an entry of ``tilesim explain --format json``; raises like
    `explain`."""
    known = numbered() if _NUMBER.fullmatch(rule) else {}
    if rule.upper() in known:
        section, said = known[rule.upper()]
        return {
            "rule": rule.upper(), "section": section, "text": " ".join(said),
            "findings": _about(rule.upper()),
        }  # fmt: skip
    if rule in ASSUMPTIONS and rule not in RULE_DOCS:
        text = ASSUMPTIONS[rule]
        return {"rule": rule, "section": "what proofs assume", "text": text, "findings": []}
    doc = _find(rule)
    return {
        "rule": doc.name,
        "summary": doc.summary,
        "text": doc.explanation,
        "fix": doc.fix,
        "ptx": list(doc.ptx),
        "rules": list(doc.rules),
        "reported": doc.buggy,
        "proved": doc.fixed,
    }


def listing_json() -> list[dict[str, Any]]:
    """`listing`, as entries of ``tilesim explain --format json``."""
    return [{"rule": doc.name, "summary": doc.summary} for doc in RULE_DOCS.values()]


def _about(number: str) -> list[str]:
    return [doc.name for doc in RULE_DOCS.values() if number in doc.rules]


def _assumption(name: str, style: Style) -> Iterator[str]:
    """What a proof takes for granted, and how to do without."""
    yield style.bold(f"{name} (what proofs assume)")
    yield ""
    text = f"Taken for granted: {ASSUMPTIONS[name]}. {_DENY.format(name)}"
    yield from wrap(text, style.width, break_long_words=False, break_on_hyphens=False)


def _number(rule: str, section: str, said: list[str], style: Style) -> Iterator[str]:
    """What the semantics says of a number, and the findings that are about it."""
    yield style.bold(f"{rule} ({section})")
    yield ""
    yield from wrap(" ".join(said), style.width, break_long_words=False, break_on_hyphens=False)
    if rule in SWITCHES:
        yield ""
        text = f"Proofs at practice may lean on it: {SWITCHES[rule]}. {_DENY.format(rule)}"
        yield from wrap(text, style.width, break_long_words=False, break_on_hyphens=False)
    about = _about(rule)
    if about:
        yield ""
        yield f"findings: {', '.join(about)}"


def _find(rule: str) -> RuleDoc:
    if rule in RULE_DOCS:
        return RULE_DOCS[rule]
    close = get_close_matches(rule, [*RULE_DOCS, *ASSUMPTIONS], n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise UsageError(f"there is no rule {rule!r}{hint} (tilesim explain lists them)")


def listing(style: Style = PLAIN) -> Iterator[str]:
    """A line or two per finding."""
    column = max(map(len, RULE_DOCS)) + 2
    for doc in RULE_DOCS.values():
        first, *rest = wrap(doc.summary, max(style.width - column, 30))
        yield style.bold(doc.name.ljust(column)) + first
        yield from (" " * column + line for line in rest)


def _page(doc: RuleDoc, style: Style) -> Iterator[str]:
    yield style.bold(doc.name)
    for paragraph in (doc.summary, *doc.explanation.split("\n\n"), f"Fix: {doc.fix}"):
        yield ""
        yield from wrap(paragraph, style.width, break_long_words=False, break_on_hyphens=False)
    yield ""
    for section in doc.ptx:
        yield f"PTX ISA: {section}"
    if doc.rules:
        yield f"rules: {', '.join(doc.rules)}"
    for title, code in (("reported", doc.buggy), ("proved", doc.fixed)) if doc.buggy else ():
        yield ""
        yield f"{title}:"
        yield ""
        yield indent(code.rstrip("\n"), "    ")
