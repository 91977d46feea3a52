"""Times of kernels on GPUs that have been measured: predictions, never part of a verdict.

The constants were measured by ``benchmarks/calibration``; nothing is measured here.
"""
