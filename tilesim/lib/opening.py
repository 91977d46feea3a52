"""How kernels begin: initialised barriers that all threads, or all of the cluster, may use."""

from __future__ import annotations

from tilesim.dsl.builder import Builder
from tilesim.ir.declarations import Mbarriers
from tilesim.lib.pipeline import Pipeline

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True

#: a ring with the counts it knows, or mbarriers with the count of each
Barriers = Pipeline | tuple[Mbarriers, int]


def initialise(k: Builder, *barriers: Barriers) -> None:
    """One thread initialises them and fences; no use may come before a barrier that follows."""
    with k.one_thread():
        for each in barriers:
            if isinstance(each, Pipeline):
                each.init()
                continue
            array, count = each
            for index in range(array.count):
                k.mbarrier.init(array[index], count)
        k.fence.mbarrier_init()


def open_cta(k: Builder, *barriers: Barriers) -> None:
    """`initialise`, and a barrier of all threads of the CTA."""
    initialise(k, *barriers)
    k.sync_threads()


def open_cluster(k: Builder, *barriers: Barriers) -> None:
    """`initialise`, and a barrier of the cluster.

    ``fence.mbarrier_init`` publishes the initialisation, so a relaxed cluster arrive is enough; the
    cluster barrier also tells every CTA that its peers have started.
    """
    initialise(k, *barriers)
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
