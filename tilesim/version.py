"""The version, which results name."""

__version__ = "0.3.0"
