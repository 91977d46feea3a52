"""A worker of a Dask cluster, for `tests.fuzz.test_scheduler`."""

from __future__ import annotations

import asyncio
from typing import Any


def serve(address: str) -> None:
    """Works for the scheduler at ``address`` until somebody ends the process."""
    import distributed

    worker: Any = distributed.Worker

    async def serve_() -> None:
        async with worker(address, nthreads=1, dashboard=False, silence_logs=50) as ours:
            await ours.finished()

    asyncio.run(serve_())
