"""Runs an experiment: evidence, decision, training under constraints, evaluation, record and checkpoint."""
