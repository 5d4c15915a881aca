"""Audits: attacks on the software with known neighbouring tables, and lower bounds on its privacy cost."""
