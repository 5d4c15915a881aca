"""Damaged files of every kind that Understudy reads."""
