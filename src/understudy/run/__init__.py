"""Private runs, from plan to settlement: sources of rows, checkpoints, records of failures, atomic writes."""
