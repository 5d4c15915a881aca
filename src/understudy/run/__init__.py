"""What makes a killed run resumable: whole files or none, and checkpoints."""
