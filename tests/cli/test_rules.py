"""The documentation of rules: complete, true, and up to date."""

from __future__ import annotations

import re

import pytest

from docs.generate_findings import pages
from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.findings.finding import RULES
from tilesim.findings.rules import RULE_DOCS, RuleDoc
from tilesim.loader import load

from .conftest import ROOT, Invoke, Write

#: no kernel breaks a rule of machine code
WITH_EXAMPLES = [doc for doc in RULE_DOCS.values() if doc.name != "translation"]


def outcome(source: str, write: Write) -> tuple[str, set[str]]:
    """Verdict and rules of the one kernel in ``source``."""
    try:
        (target,) = load(write("example.py", source))
        report = check(target.build())
    except InvalidProgram as error:
        return "rejected", {d.rule for d in error.diagnostics}
    return report.verdict, set(report.rules)


@pytest.mark.parametrize("doc", WITH_EXAMPLES, ids=lambda doc: doc.name)
def test_example_is_reported_and_its_fix_is_proved(doc: RuleDoc, write: Write) -> None:
    verdict, rules = outcome(doc.buggy, write)
    assert verdict in ("failed", "rejected", "unsupported")
    assert doc.name in rules
    assert outcome(doc.fixed, write) == ("proved", set())


def test_every_rule_is_documented() -> None:
    assert list(RULE_DOCS)[: len(RULES)] == list(RULES)
    for doc in RULE_DOCS.values():
        assert all((doc.summary, doc.explanation, doc.fix, doc.ptx)), doc.name
        assert all((doc.buggy, doc.fixed)) == (doc in WITH_EXAMPLES), doc.name
        assert doc.summary.endswith(".")


def test_every_rule_that_a_diagnostic_names_is_documented() -> None:
    pattern = re.compile(r'(?:Diagnostic\(\s*|rule=)"([a-z0-9-]+)"')
    folders = ("analysis", "dsl", "ir", "transforms")
    for path in (p for f in folders for p in (ROOT / "tilesim" / f).rglob("*.py")):
        for rule in pattern.findall(path.read_text()):
            assert rule in RULE_DOCS, f"{path.name}: {rule}"


def test_pages_of_findings_are_up_to_date() -> None:
    folder = ROOT / "docs"
    written = [folder / "findings.md", *(folder / "findings").glob("*.md")]
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in written}
    assert found == pages(), "run python -m docs.generate_findings"


@pytest.mark.parametrize("rule", sorted(RULE_DOCS))
def test_explain_prints_the_page(rule: str, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("explain", rule)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{rule}\n\n")
    assert max(map(len, result.stdout.splitlines())) <= 104


def test_explain_lists_rules(tilesim_cli: Invoke) -> None:
    lines = tilesim_cli("explain").stdout.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == list(RULE_DOCS)


def test_explain_unknown_rule_suggests(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("explain", "dead-lock")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no rule 'dead-lock'; did you mean deadlock" in result.stderr


def test_a_number_is_explained(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("explain", "a13", "deadlock")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("A13 (A. mbarrier)\n\nMore arrivals than pending are undefined")
    assert "findings: over-arrival" in result.stdout
    assert "\ndeadlock\n" in result.stdout


def test_a_number_that_does_not_exist(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("explain", "A99")
    assert result.exit_code == 2
    assert "there is no rule 'A99'" in result.stderr


def test_what_proofs_lean_on_is_explained(tilesim_cli: Invoke) -> None:
    switch = tilesim_cli("explain", "U12").stdout
    assert switch.startswith("U12 (Two strictness levels)\n\nGeneric read, then asynchronous write")
    assert "--deny U12" in switch.replace("\n", " ")
    assumed = tilesim_cli("explain", "in-bounds").stdout
    assert "addresses that are taken from tensors which were not given" in assumed
    assert "--deny in-bounds" in assumed.replace("\n", " ")
