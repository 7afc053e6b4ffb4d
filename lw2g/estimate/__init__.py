"""What a run will cost, and what it lacks, without writing it."""
