"""Training lineages: checkpoints of one run in order, trained here or found on the hub."""
