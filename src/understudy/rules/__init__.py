"""Rules that every synthetic row satisfies: conditions, lookup tables, and the codes that they allow. All is public."""
