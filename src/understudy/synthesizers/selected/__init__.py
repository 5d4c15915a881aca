"""Private selection among the checkpoints of a training, and the tasks that they are selected for."""
