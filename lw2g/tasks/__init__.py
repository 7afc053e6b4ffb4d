"""Learning one task: evidence, decision, training under constraints, spaces."""
