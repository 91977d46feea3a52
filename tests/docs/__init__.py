"""The README and the documentation pages are executed."""
