"""Results of a campaign as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
_HEAD = (
    "| program | PTX | dump, KB | s to dump | s to read | waiting set | barrier | line | culprit "
    "| wrong | remark |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
)


def page(document: Mapping[str, Any]) -> str:
    """All results: what they were made with, sums, and a row for each dump that was read."""
    rows = document["rows"]
    read = [row for row in rows if "ptx" in row]
    other = [row for row in rows if "ptx" not in row and not _as_it_should(row)]
    twins = [row for row in rows if row.get("twin")]
    parts = [
        about(document),
        totals(document),
        _HEAD + "".join(_line(row) for row in read),
        f"{sum(_as_it_should(row) for row in twins)} of {len(twins)} right twins ended.\n",
    ]
    if other:
        lines = "".join(
            f"* {row['id']}: {row['state']}{_remark(row, ': ')}\n"
            for row in other
        )  # fmt: skip
        parts.append(f"What was not dumped, and why:\n\n{lines}")
    return "\n".join(parts)


def about(document: Mapping[str, Any]) -> str:
    """What the results were made with, and when."""
    return (
        f"{document['gpu']}, driver {document['driver']}, nvcc {document['nvcc']}, tilesim "
        f"{document['tilesim']}; {document['date']}, {document['seconds']} s for all of it."
    )


def totals(document: Mapping[str, Any]) -> str:
    """The figures that matter, a line each."""
    scored = [row for row in document["rows"] if row.get("score")]
    with_ptx = [row for row in scored if row["ptx"] != "none"]
    without = [row for row in scored if row["ptx"] == "none"]
    culprits = [row for row in with_ptx if row["score"]["culprit"] is not None]
    times = sorted(row["seconds"] for row in document["rows"] if "seconds" in row)
    lines = [
        f"* dumps that were read: {len(times)}"
        + (f", in {times[len(times) // 2]} s (median), {times[-1]} s at most" if times else ""),
        f"* right culprit with PTX: {_share(culprits, lambda s: s['culprit'])}",
        f"* right waiting set with PTX: {_share(with_ptx, lambda s: s['waiting'])}",
        f"* right waiting set and barrier without PTX: "
        f"{_share(without, lambda s: s['waiting'] and s['barrier'])}",
        f"* wrong statements: {sum(len(row['score']['wrong']) for row in scored)}",
        f"* dumps that could not be read: {sum('error' in row for row in document['rows'])}",
    ]
    return "\n".join(lines) + "\n"


def _share(rows: Iterable[Row], right: Callable[[Mapping[str, Any]], bool]) -> str:
    marks = [bool(right(row["score"])) for row in rows]
    share = f" ({100 * sum(marks) // len(marks)}%)" if marks else ""
    return f"{sum(marks)} of {len(marks)}{share}"


def _as_it_should(row: Row) -> bool:
    """Whether a program that is to end has ended."""
    return bool(row.get("twin")) and row["state"] == "ended"


def _line(row: Row) -> str:
    marks = row.get("score") or {}
    cells = (
        f"`{row['id']}`", row["ptx"], f"{row.get('bytes', 0) / 1000:,.0f}",
        row.get("dump_seconds", ""), row.get("seconds", ""), _mark(marks.get("waiting")),
        _mark(marks.get("barrier")), _mark(marks.get("lines")), _mark(marks.get("culprit")),
        "; ".join(marks.get("wrong", ())), _remark(row),
    )  # fmt: skip
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |\n"


def _mark(right: bool | None) -> str:
    return "" if right is None else "yes" if right else "NO"


def _remark(row: Row, before: str = "") -> str:
    missed = "; ".join((row.get("score") or {}).get("missed", ()))
    last = (row.get("output") or "").strip().splitlines()[-1:]
    text = row.get("error") or missed or "".join(last) or row.get("note") or ""
    return before + " ".join(str(text).split())[:200] if text else ""
