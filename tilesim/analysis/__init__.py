"""What holds at each place of a program, before it runs: one solver, one analysis per question."""
