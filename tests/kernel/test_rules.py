"""Each rule of the proof kernel: a program that breaks it, and the nearest one that does not.

A wrong program is refuted by that very rule; its twin is certified. Of rules that say what is not
covered, the wrong program is not covered. What is wrong at `ptx` only is certified at `practice`.
"""

from __future__ import annotations

import pytest

from tests.kernel.pairs import PAIRS
from tests.kernel.programs import Pair
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.proof.rules import RULES

#: rules of what is refused before a program runs, whichever mbarrier it names
_REFUSED = {"an_mbarrier_that_a_peer_starts", "a_wait_for_the_mbarrier_of_a_peer"}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.rule}-{pair.program.__name__}")
def test_a_wrong_program_is_refused_and_its_twin_is_not(pair: Pair) -> None:
    wrong = pair.answer(right=False)
    assert wrong.verdict == ("not covered" if pair.not_covered else "refuted")
    if pair.not_covered:
        assert pair.not_covered in wrong.what
    else:
        assert wrong.rule == pair.breaks
    assert str(pair.answer(right=True)) == "certified"
    if pair.strict == "ptx":
        assert str(certify(pair.mir(right=False), pair.classes[False])) == "certified"
    if pair.program.__name__ not in _REFUSED:  # the twin is one that runs
        verify(pair.mir(right=True))


def test_each_rule_has_a_program_that_breaks_it() -> None:
    # tests/kernel/test_certificate.py, test_repetitions.py, test_spins.py, test_regions.py,
    # test_parameters.py, test_written.py
    elsewhere = {"fingerprint", "repetition", "goes on", "comes back", "A25", "region", "loops-end",
                 "form", "family", "every", "values", "read-only"}  # fmt: skip
    assert {pair.rule for pair in PAIRS} | elsewhere == RULES.keys()
