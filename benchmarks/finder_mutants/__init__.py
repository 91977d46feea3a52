"""Mutants of tilesim's own proof code, and whether a wrong program exposes them.

`collect` (a pytest plugin) keeps every program that the tests check, with the verdict that it gets.
`mutate` changes one place of one function, drawn over syntax trees. `judge` checks the programs
under one mutant: a mutant is *exposed* if a wrong program gets another verdict or another rule.
"""
