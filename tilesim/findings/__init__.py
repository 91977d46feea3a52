"""Findings as data, and the documentation of each rule."""
