"""Describes releases in the formats of other tools, from the schema and the release, never from real rows."""
