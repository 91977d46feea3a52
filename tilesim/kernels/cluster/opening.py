"""How every cluster kernel begins: initialised barriers that the whole cluster may use."""

from __future__ import annotations

from tilesim.ir.builder import Builder
from tilesim.ir.memory import Mbarriers

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True


def open_cluster(k: Builder, *barriers: tuple[Mbarriers, int]) -> None:
    """Initialises every mbarrier of each array with its count, and waits for the cluster.

    ``fence.mbarrier_init`` publishes the initialisation, so a relaxed cluster arrive is enough; the
    cluster barrier also tells every CTA that its peers have started.
    """
    with k.one_thread():
        for array, count in barriers:
            for index in range(array.count):
                k.mbarrier.init(array[index], count)
        k.fence.mbarrier_init()
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
