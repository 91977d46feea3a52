"""Hypothesis strategies: dtypes, tensor maps, schedules, whole pipelines, and faulty ones.

::

    from hypothesis import given
    from tilesim import check
    from tilesim.strategies import correct_pipelines, mutated_pipelines

    @given(correct_pipelines())
    def test_my_pass_keeps_pipelines_correct(example):
        assert check(my_pass(example.program)).verdict in ("proved", "exhausted")

What hypothesis prints of an example that fails can be pasted after
``from tilesim.strategies import *`` and ``import tilesim``. The only part of tilesim that needs
hypothesis.
"""

from tilesim.sim.machine.schedule import PctChooser, RandomChooser, ReplayChooser
from tilesim.strategies.basic import boxes, dtypes, schedules, tensor_maps
from tilesim.strategies.example import Example
from tilesim.strategies.pipelines import (
    FAMILIES,
    correct_pipelines,
    mutated_pipelines,
    mutations,
    pipeline,
)

__all__ = [
    "FAMILIES",
    "Example",
    "PctChooser",
    "RandomChooser",
    "ReplayChooser",
    "boxes",
    "correct_pipelines",
    "dtypes",
    "mutated_pipelines",
    "mutations",
    "pipeline",
    "schedules",
    "tensor_maps",
]
