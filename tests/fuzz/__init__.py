"""Tests of fault injection, strategies and campaigns."""
