"""Hopper kernels without a bug: a matmul in seven steps, copies, a softmax.

The matmuls compute ``C = A @ B.T`` from K-major bf16 operands and are meant to be read in order:
each version changes one thing.
"""
