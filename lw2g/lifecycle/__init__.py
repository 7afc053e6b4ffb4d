"""A run from its start to its record: start, resume, continue, fork."""
