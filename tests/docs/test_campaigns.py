"""docs/soundness/campaigns.md: its table is what is recorded, and what it names is there."""

from __future__ import annotations

import json
import re

from docs.generate_campaigns import PAGE, RECORD, page

from .pages import ROOT


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "run python -m docs.generate_campaigns"


def test_campaigns_are_modules() -> None:
    for name in json.loads(RECORD.read_text()):
        for module in re.findall(r"tests(?:\.\w+)+", name):
            assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module
