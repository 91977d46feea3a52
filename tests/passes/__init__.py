"""Passes: what they insert is sufficient, needed, and nothing is inserted twice."""
