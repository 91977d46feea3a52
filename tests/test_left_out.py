"""The end of a test run names what was left out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).with_name("conftest.py").read_text()


#: files of the run that is looked at: data of the test below, which skips nothing of this suite
FILES = {
    "test_one": """
        import pytest

        for_a_reason = pytest.mark.skipif(True, reason="an example of a reason")

        @for_a_reason
        def test_a(): ...

        @for_a_reason
        def test_b(): ...

        def test_c(): pytest.skip("another example")

        def test_d(): ...
    """,
    "test_two": """
        import pytest

        pytest.importorskip("no_such_module", reason="an example of a missing extra")
    """,
}


def test_what_was_skipped_is_said_at_the_end(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(**FILES)
    lines = pytester.runpytest_inprocess("-p", "no:cacheprovider").outlines
    at = next(n for n, line in enumerate(lines) if "NOT TESTED HERE" in line)
    assert lines[at + 1 : at + 4] == [
        "     2 an example of a reason",
        "     1 an example of a missing extra",
        "     1 another example",
    ]


def test_a_whole_run_says_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("def test_a(): ...")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.stdout.no_fnmatch_line("*NOT TESTED HERE*")
