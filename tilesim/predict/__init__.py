"""Times of kernels on GPUs that have been measured: predictions, never part of a verdict."""
