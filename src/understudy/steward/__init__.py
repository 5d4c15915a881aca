"""Reads real rows without noise, for the data steward only: previews, splits, checks. No release contains any of it."""
