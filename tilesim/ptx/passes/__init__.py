"""Passes that make MIR of PTX small: what checks run on."""
