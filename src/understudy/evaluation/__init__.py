"""Judges synthetic tables against real ones. Everything here reads real rows: no number of it is private."""
