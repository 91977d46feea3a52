"""Tests of the server for editors."""
