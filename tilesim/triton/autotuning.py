"""Autotuners while launches are recorded: every configuration is launched, none is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from triton.runtime.autotuner import Autotuner

from tilesim.recording import Skipped, once

#: what an autotuner keeps from one launch to the next: its choices, and how it measures
_KEPT = ("cache", "cache_results", "do_bench", "configs_timings")


class Autotuning:
    """What autotuners do inside `every_configuration`.

    ``skip`` is told of configurations that are not launched; `running` is the depth of autotuned
    launches, ``settle`` is called when the outermost has ended.
    """

    def __init__(self, skip: Callable[[Skipped], None], settle: Callable[[], None]) -> None:
        self._skip = skip
        self._settle = settle
        self._run, self._bench = Autotuner.run, Autotuner._bench
        #: autotuners met, and what they had kept before
        self._met: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._tried: list[Any] = []
        self._why = ""
        self.running = 0

    @contextmanager
    def every_configuration(self) -> Iterator[None]:
        """Within it, a launch of an autotuned kernel launches each configuration once."""

        def run(tuner: Any, *args: Any, **options: Any) -> Any:
            return self._launch(tuner, args, options)

        def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            return self._try(tuner, args, config, meta)

        with patch.object(Autotuner, "run", run), patch.object(Autotuner, "_bench", bench):
            try:
                yield
            finally:
                for tuner, kept in self._met.values():
                    for name in _KEPT:
                        tuner.__dict__.pop(name, None)
                    tuner.__dict__.update(kept)

    def _launch(self, tuner: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        first = id(tuner) not in self._met
        if first:
            kept = {name: tuner.__dict__[name] for name in _KEPT if name in tuner.__dict__}
            self._met[id(tuner)] = (tuner, kept)
            tuner.cache, tuner.cache_results, tuner.do_bench = {}, False, self._once
        tried, self._tried = self._tried, []
        choices = len(tuner.cache)
        self.running += 1
        try:
            found = self._run(tuner, *args, **options)
            if len(tuner.cache) > choices:
                self._say_pruned(tuner)
            return found
        finally:
            self.running -= 1
            self._tried = tried
            if not self.running:
                self._settle()

    def _try(self, tuner: Any, args: tuple[Any, ...], config: Any, meta: dict[str, Any]) -> Any:
        self._tried.append(config)
        self._why = ""
        timings = self._bench(tuner, *args, config=config, **meta)
        if self._why:
            self._skip(Skipped(tuner.base_fn.__name__, str(config), self._why))
        return timings

    def _once(self, call: Callable[[], object], **options: Any) -> float | list[float]:
        try:
            return once(call, **options)
        except Exception as error:
            self._why = " ".join(str(error).split()) or type(error).__name__
            raise

    def _say_pruned(self, tuner: Any) -> None:
        """The configurations that the kernel's own pruning left out."""
        tried = self._tried or list(tuner.cache.values())
        for config in tuner.configs:
            if not any(config is one for one in tried):
                self._skip(Skipped(tuner.base_fn.__name__, str(config), "pruned by the kernel"))


def configuration(source: Any, metadata: Any) -> str:
    """What a kernel was compiled with: its constants, warps, stages and clusters."""
    names = source.fn.arg_names
    said = {
        ".".join((names[path[0]], *map(str, path[1:]))): value
        for path, value in source.constants.items()
    }
    usual = {"num_ctas": 1, "maxnreg": None}
    for name in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
        value = getattr(metadata, name, None)
        if name not in usual or value != usual[name]:
            said[name] = value
    return "with " + ", ".join(f"{name}={_shown(value)}" for name, value in said.items())


def _shown(value: Any) -> str:
    text = str(getattr(value, "__name__", value)) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
