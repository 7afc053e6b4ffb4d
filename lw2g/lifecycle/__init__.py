"""A run from its estimate and its start to its record."""
