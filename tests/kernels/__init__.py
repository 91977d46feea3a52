"""Tests of the gallery, `tilesim.kernels`."""
