"""Resumable runs: atomic writes and checkpoints."""
