"""The server for coding agents."""
