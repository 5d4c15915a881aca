"""Comparing methods on public tables."""
