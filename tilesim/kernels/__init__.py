"""The gallery: real kernels and real bugs, importable and checked.

``python -m tilesim.kernels`` checks every entry; `tilesim.kernels.registry.cases` lists them.
"""
