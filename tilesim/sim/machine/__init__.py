"""What there is while a kernel runs: warps, memory, barriers, clocks, and what moves them.

What an instruction does to it is in ``execute``, a module per kind of effect. What is wrong about a
step is judged in `tilesim.sim.observers`; which warp moves next is up to the schedule of a run.
"""
