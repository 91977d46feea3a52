"""``python -m tests.export.update``: rewrites golden/ from what is exported now. Read the diff."""

from __future__ import annotations

from .test_promela import GOLDEN, golden


def main() -> None:
    """Rewrites the files."""
    GOLDEN.mkdir(exist_ok=True)
    for name in ("ring", "cluster"):
        (GOLDEN / f"{name}.pml").write_text(golden(name))


if __name__ == "__main__":
    main()
