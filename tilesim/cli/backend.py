"""What commands with ``--backend`` share: the option, and how they get at the GPU backend."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Literal

import click

from tilesim.cli.options import Decorator
from tilesim.errors import UsageError

Backend = Literal["sim", "gpu", "both"]


def backend_option(help_text: str) -> Decorator:
    """``--backend sim|gpu|both``."""
    return click.option(
        "--backend", type=click.Choice(["sim", "gpu", "both"]), default="sim", show_default=True,
        help=help_text,
    )  # fmt: skip


def gpu_module(name: str, backend: Backend) -> ModuleType:
    """A module of the GPU backend.

    Raises:
        UsageError: it cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"--backend {backend} needs the gpu extra and a GPU ({error}): "
            "pip install 'tilesim[gpu]'; tilesim doctor says what is missing"
        ) from error
