"""Autopsies as JSON, as findings for SARIF, and as a page."""
