"""Autoencoders: codes that are of one row each."""
