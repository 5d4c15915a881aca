"""Reads schemas and code books of other tools."""
