"""SM100 kernels without a bug: a matmul in seven steps, and attention.

The matmuls lead from one thread that does everything to persistent pairs of CTAs with cluster
launch control; each version changes one thing and says why.
"""
