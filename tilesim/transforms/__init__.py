"""Programs to programs and to MIR: lowering, loops that only wait, edits, fused arrivals.

What a transformation needs to know of a program comes from `tilesim.analysis`. Passes that make the
MIR of PTX small are in `tilesim.ptx.passes`; missing fences are inserted by
`tilesim.checker.inject_fences`, which has to run the program.
"""
