"""Steady state: where a run repeats itself up to shifts of values, whole periods are skipped.

`snapshot` compares the state of a machine at two times, `fields` says what of it may differ and
how, `shifts` follows differences through the expressions of one period, `period` watches one, and
`skip` looks for repetitions while a machine runs.
"""
