"""Tables of the mutation score, as text and for the documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from tilesim.errors import UsageError
from tilesim.fuzz.campaign import Site
from tilesim.fuzz.judge import Kind
from tilesim.mistakes.table import FAULTS

_COLUMNS: tuple[Kind, ...] = (
    "found", "refused", "wrong result", "equivalent", "silent", "open",
)  # fmt: skip
_LOOK: tuple[Kind, ...] = ("contradicted", "error", "open", "silent")
Rows = list[tuple[str, ...]]


def by_fault(found: Sequence[Site]) -> Rows:
    """One row per fault: sites, what became of them, findings, most schedules needed."""
    rows = [("fault", "sites", *_COLUMNS, "findings", "schedules")]
    groups = _grouped(found, lambda s: s.fault)
    for fault in [*(f for f in FAULTS if f in groups), ""]:
        group = groups[fault] if fault else found
        rows.append((fault or "all", *_counts(group), _findings(group), _schedules(group)))
    return rows


def by_kernel(found: Sequence[Site]) -> Rows:
    """One row per kernel."""
    rows = [("kernel", "sites", *_COLUMNS)]
    groups = _grouped(found, lambda s: s.kernel)
    return rows + [(name, *_counts(group)) for name, group in groups.items()]


def score(found: Iterable[Site], *, ran: bool = False) -> float:
    """Percent of the mutants that are not equivalent which `check` finds or refuses.

    ``ran``: those count as well that `check` proves and whose result ``tilesim run`` finds wrong.
    """
    kinds = Counter(site.kind for site in found)
    wrong = kinds["wrong result"]
    caught = kinds["found"] + kinds["refused"] + (wrong if ran else 0)
    every = kinds["found"] + kinds["refused"] + wrong + sum(kinds[k] for k in _LOOK)
    return 100 * caught / every if every else 100.0


def to_look_at(found: Iterable[Site]) -> Iterator[Site]:
    """The sites that are neither found nor equivalent, the worst first."""
    listed = list(found)
    for wanted in _LOOK:
        yield from (site for site in listed if site.kind == wanted)


def text(rows: Rows) -> str:
    """Aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def markdown(rows: Rows) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join((lines[0], "|---" * len(rows[0]) + "|", *lines[1:]))


def with_part(page: str, name: str, new: str) -> str:
    """The page with what is between its ``name`` markers replaced.

    Raises:
        UsageError: the page has no such markers.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        raise UsageError(f"the page has no part {name!r} ({begin} ... {end})")
    return pattern.sub(lambda match: f"{begin}\n\n{new}\n\n{end}", page)


def _grouped(found: Iterable[Site], key: Callable[[Site], str]) -> dict[str, list[Site]]:
    groups: dict[str, list[Site]] = {}
    for site in found:
        groups.setdefault(key(site), []).append(site)
    return groups


def _counts(group: Sequence[Site]) -> tuple[str, ...]:
    kinds = Counter(site.kind for site in group)
    return (str(len(group)), *(str(kinds[k] or "") for k in _COLUMNS))


def _findings(group: Iterable[Site]) -> str:
    """The first findings, the most frequent first."""
    rules = Counter(s.decisive.rules[0] for s in group if s.kind == "found" and s.decisive.rules)
    ranked = sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{rule} {count}" for rule, count in ranked)


def _schedules(group: Iterable[Site]) -> str:
    """How many are found in the first run, and the most schedules that one needs."""
    tried = [s.decisive.schedules for s in group if s.kind == "found"]
    if not tried:
        return ""
    later = [n for n in tried if n > 1]
    return f"1 ({len(tried) - len(later)}), up to {max(later)} ({len(later)})" if later else "1"
