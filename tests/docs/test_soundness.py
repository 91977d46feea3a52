"""docs/soundness: generated tables are current, and campaigns that they name are there."""

from __future__ import annotations

import json
import re

from docs.generate_soundness import CAMPAIGNS, PAGE, RECORD, campaigns, page

from .pages import ROOT


def test_the_pages_are_up_to_date() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "run python -m docs.generate_soundness"
    text = CAMPAIGNS.read_text()
    assert text == campaigns(text), "run python -m docs.generate_soundness"


def test_campaigns_are_modules() -> None:
    for name in json.loads(RECORD.read_text()):
        for module in re.findall(r"tests(?:\.\w+)+", name):
            assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module
