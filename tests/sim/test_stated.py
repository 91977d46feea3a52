"""What findings state beside their texts: their kinds, what they name, numbers."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.litmus.sections import all_rows
from tests.verdicts.corpora import entries
from tilesim.checker import check
from tilesim.findings.finding import RULES, Finding, Kind, Named, Stated, together

ROWS = {row.id: row for row in all_rows()}
EXAMPLES = {entry.name: entry for entry in entries("rules")}
#: by litmus row, the kind of its finding
KINDS: dict[str, Kind] = {
    "LD05": "deadlock/joins-too-early",
    "LE03": "deadlock/round-not-full",
    "LB17-elsewhere": "proxy-fence/map-acquire",
    "LB30-release": "proxy-fence/map-release",
    "LM06-early": "race/earlier-grid",
    "LB09": "race/in-flight",
    "LJ13-relaxed": "race/in-time-only",
    "LJ04-lanes": "race/lanes",
    "LI05-part": "race/mixed-sizes",
    "LB19-twice": "race/one-store",
    "LM09-two": "race/other-cluster",
    "LS06-other": "race/released-by-lanes",
    "LS01-cta": "race/scopes",
    "LB06": "race/unobserved",
    "LG07-no-fences": "tcgen05-order/issue-order",
    "LG06-relaxed-no-fence": "tcgen05-order/no-fence",
    "LF02": "wgmma-order/no-fence",
}
#: the same of the examples of rules
OF_EXAMPLES: dict[str, Kind] = {
    "race": "race/unordered",
    "proxy-fence": "proxy-fence/async",
    "tcgen05-order": "tcgen05-order/not-complete",
    "tmem-lifetime": "tmem-lifetime/not-freed",
}


def test_kinds_are_of_rules() -> None:
    assert {kind.partition("/")[0] for kind in get_args(Kind)} <= {*RULES}


@pytest.mark.parametrize("row", KINDS)
def test_the_kind_of_a_finding(row: str) -> None:
    assert _first(check(ROWS[row].build()).findings, KINDS[row]).kind == KINDS[row]


@pytest.mark.parametrize("rule", OF_EXAMPLES)
def test_the_kind_of_an_example(rule: str) -> None:
    assert _first(_findings(rule), OF_EXAMPLES[rule]).kind == OF_EXAMPLES[rule]


def test_columns_that_are_freed_without_a_fence() -> None:
    report = check(ROWS["LM11-unwaited"].build(), strict="ptx")
    assert _first(report.findings, "tmem-lifetime/no-fence").kind == "tmem-lifetime/no-fence"


def test_a_fence_that_is_missing_is_named() -> None:
    finding = _first(check(ROWS["LB30-release"].build()).findings, "proxy-fence/map-release")
    assert finding.facts.fence == "fence.proxy.tensormap::generic.release"


def test_an_arrival_too_many_names_its_barrier_and_its_number() -> None:
    (finding,) = (f for f in _findings("over-arrival") if f.rule == "over-arrival")
    (barrier,) = finding.facts.named
    assert finding.message.startswith(f"{finding.facts.arrivals[0]} arrival")
    assert barrier.label in finding.message
    assert barrier.label == f"{barrier.name}[{barrier.slot}]"


def test_the_cta_that_ends_too_early_is_a_number() -> None:
    finding = _findings("peer-exit")[0]
    assert finding.message.startswith(f"CTA {finding.facts.cta} can exit")


def test_a_waiter_waits_for_a_barrier_and_a_parity() -> None:
    finding = _findings("deadlock")[0]
    deeds = [p.deed for p in finding.participants]
    assert all(d is not None and d.verb == "waits" and d.on is not None for d in deeds)
    for p, deed in zip(finding.participants, deeds, strict=True):
        assert deed is not None
        assert deed.on is not None
        assert p.action == f"waits on {deed.on.label} parity {deed.parity}"
        assert deed.on in finding.noted.named
        assert p.loc in finding.noted.lines
    assert finding.noted.arrivals


def test_an_access_names_its_tensor_and_its_first_index() -> None:
    reads, writes = (p.deed for p in _findings("race")[0].participants)
    assert reads is not None
    assert writes is not None
    assert {reads.verb, writes.verb} == {"reads", "writes"}
    for deed, p in zip((reads, writes), _findings("race")[0].participants, strict=True):
        assert deed.on is not None
        assert f"{deed.verb} {deed.on.label}" in p.action
        assert deed.on.label.startswith(deed.on.name)


def test_a_barrier_of_the_own_cta_goes_without_its_number() -> None:
    full = Named("CTA 1 full[2]", "full", 2, 1)
    assert full.seen_from(1) == "full[2]"
    assert full.seen_from(0) == "CTA 1 full[2]"
    assert full.in_any_cta == Named("CTA 3 full[2]", "full", 2, 3).in_any_cta
    assert full.in_any_cta != Named("CTA 1 full[0]", "full", 0, 1).in_any_cta
    tile = Named("tile[0, 0:64]", "tile", 0)
    assert tile.seen_from(1) == tile.label
    assert tile.in_any_cta != Named("tile[1, 0:64]", "tile", 1).in_any_cta


def test_texts_together_state_each_thing_once() -> None:
    first, second = Named("a[0]", "a", 0), Named("b", "b")
    both = together((Stated((first,), arrivals=(2, 4)), Stated((second, first), arrivals=(4,))))
    assert both == Stated((first, second), arrivals=(2, 4))
    assert both.names == {"a", "b"}


def _findings(rule: str) -> tuple[Finding, ...]:
    return check(EXAMPLES[f"{rule} buggy"].build()).findings


def _first(findings: tuple[Finding, ...], kind: Kind) -> Finding:
    """The first finding of the rule that a kind is of."""
    return next(f for f in findings if kind.startswith(f"{f.rule}/"))
