"""What a run has left, recomputed and verified."""
