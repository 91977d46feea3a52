"""Every instruction stands in litmus rows: in one that is right, and in one that is wrong.

What else follows from a definition is asked of all of them elsewhere: that they are emitted and
compiled (`tests/gpu/test_emit.py`), printed and parsed (`tests/ir/test_text.py`), reachable from
the DSL and in its reference page (`tests/docs/test_pages.py`), read from PTX (`tests/ptx`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tilesim import InvalidProgram
from tilesim.ir import ops
from tilesim.ir.op import OPS
from tilesim.ir.program import instructions
from tilesim.transforms.lower import lower

from .sections import all_rows
from .table import STRICTNESS, Completes, Row

OWN = sorted(m for m, cls in OPS.items() if cls.__module__.split(".")[-1] in ops.__all__)


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    """The rows that each instruction stands in, as it is written or as it is lowered."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in all_rows():
        for mnemonic in sorted({*_used(row)}):
            found[mnemonic].append(row)
    return found


def _used(row: Row) -> Iterator[str]:
    program = row.build()
    yield from (op.mnemonic for op in instructions(program))
    with suppress(InvalidProgram):  # that may be what the row is about
        yield from (op.mnemonic for op in lower(program).ops())


def _is_right(row: Row) -> bool:
    outcomes = [row.expected(strict) for strict in STRICTNESS]
    return all(isinstance(o, Completes) and "bounded" not in o.verdicts for o in outcomes)


def _is_wrong(row: Row) -> bool:
    return not any(isinstance(row.expected(strict), Completes) for strict in STRICTNESS)


@pytest.mark.parametrize("mnemonic", OWN)
def test_it_stands_in_a_right_row_and_in_a_wrong_one(
    mnemonic: str, rows: dict[str, list[Row]]
) -> None:
    assert [row.id for row in rows[mnemonic] if _is_right(row)]
    assert [row.id for row in rows[mnemonic] if _is_wrong(row)]
