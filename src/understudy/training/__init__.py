"""One host loop, and the device steps that it drives."""
