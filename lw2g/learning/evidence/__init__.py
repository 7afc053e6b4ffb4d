"""What a run measures of a new task before learning it, and of the live sets for it."""
