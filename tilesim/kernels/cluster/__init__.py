"""Kernels of a thread block cluster: multicast, copies between CTAs, cluster-wide barriers.

All begin with `tilesim.lib.opening.open_cluster` (no CTA is touched before it has
started and its barriers are initialised) and end with a cluster barrier (no CTA exits while a peer
may still touch its shared memory).
"""
