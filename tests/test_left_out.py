"""The end of a test run names what was left out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).with_name("conftest.py").read_text()


def test_what_was_skipped_is_said_at_the_end(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        test_one="""
        import pytest

        no_spin = pytest.mark.skipif(True, reason="needs spin and gcc")

        @no_spin
        def test_a(): ...

        @no_spin
        def test_b(): ...

        def test_c(): pytest.skip("there is a GPU")

        def test_d(): ...
        """,
        test_two="""
        import pytest

        pytest.importorskip("no_such_module", reason="needs an extra")
        """,
    )
    lines = pytester.runpytest_inprocess("-p", "no:cacheprovider").outlines
    at = next(n for n, line in enumerate(lines) if "NOT TESTED HERE" in line)
    assert lines[at + 1 : at + 4] == [
        "     2 needs spin and gcc",
        "     1 needs an extra",
        "     1 there is a GPU",
    ]


def test_a_whole_run_says_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("def test_a(): ...")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.stdout.no_fnmatch_line("*NOT TESTED HERE*")
