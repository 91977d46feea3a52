"""Dumps of hung kernels: real ones, ones made by a writer, malformed ones."""
