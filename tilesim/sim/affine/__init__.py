"""One run for all iterations, clusters and values of parameters."""
