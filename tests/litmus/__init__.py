"""Litmus programs: one tiny program per rule of the memory and barrier model, with its verdict."""
