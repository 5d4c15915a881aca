"""Evaluates synthetic tables against real ones. Everything here reads real rows: no score is private."""
