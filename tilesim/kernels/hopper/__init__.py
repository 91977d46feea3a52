"""Hopper kernels without a bug: a matmul in nine steps, copies, a softmax, attention.

The matmuls compute ``C = A @ B.T`` from K-major bf16 operands and are meant to be read in order:
each version changes one thing. Three more have step 7's pipeline and other operands: FP8 with
scales per row or per block, and groups of rows with a matrix each.
"""
