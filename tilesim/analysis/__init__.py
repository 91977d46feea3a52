"""What holds at each place of a program, before it runs: one solver, one analysis per question.

The analyses read MIR and change nothing; programs are changed in `tilesim.transforms`. What only a
run shows is judged by `tilesim.sim.observers`.
"""
