"""``python -m tests.autopsy.update``: rewrites golden/. Read the diff before committing it."""

from __future__ import annotations

from .test_report import GOLDEN, REAL, report


def main() -> None:
    """Rewrites the files."""
    GOLDEN.mkdir(exist_ok=True)
    for name in REAL:
        (GOLDEN / f"{name}.txt").write_text(report(name))


if __name__ == "__main__":
    main()
