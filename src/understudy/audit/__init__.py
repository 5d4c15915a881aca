"""Audits: attacks on the software with tables whose difference is known, and lower bounds of its privacy cost."""
