"""What the proof kernel says of programs beside what checks say of them, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

ANSWERS = ("certified", "refuted", "not covered")
#: reasons that are listed
_MOST = 30


def summary(said: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A table of verdicts and answers, and what proofs lack, by verdicts and rechecks of rows."""
    pairs = [(verdict, *recheck.partition(": ")[::2]) for verdict, recheck in said]
    table = Counter((verdict, answer) for verdict, answer, _ in pairs)
    yield f"| a check says | {' | '.join(ANSWERS)} |"
    yield "|---|--:|--:|--:|"
    for verdict in sorted({verdict for verdict, _ in table}):
        yield f"| `{verdict}` | {' | '.join(str(table[verdict, a]) for a in ANSWERS)} |"
    lacking = Counter(w for v, a, w in pairs if v == "proved" and a == "not covered")
    if lacking:
        yield ""
        yield "| of what is proved, not covered | programs |"
        yield "|---|--:|"
        for what, n in sorted(lacking.items(), key=lambda item: (-item[1], item[0]))[:_MOST]:
            yield f"| {what} | {n} |"
