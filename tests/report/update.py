"""``python -m tests.report.update``: rewrites golden/, docs/images/ and the pages' outputs.

Read the diff before committing it.
"""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from .pictures import IMAGES, pictures
from .programs import ROOT
from .test_docs import update
from .test_text import GOLDEN, TEXTS


def main() -> None:
    """Rewrites the files."""
    GOLDEN.mkdir(exist_ok=True)
    for name, text in TEXTS.items():
        (GOLDEN / f"{name}.txt").write_text(text())
    IMAGES.mkdir(exist_ok=True)
    for name, svg in pictures():
        (IMAGES / f"{name}.svg").write_text(svg)
    with TemporaryDirectory() as folder, chdir(folder):
        shutil.copytree(ROOT / "examples", Path("examples"))
        update()


if __name__ == "__main__":
    main()
