"""What a plan says about accuracy, and rows made from a schema alone. Nothing here opens a table."""
