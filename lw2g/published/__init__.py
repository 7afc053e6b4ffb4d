"""Weights as others publish them: which files they are, what they say of themselves, and what they hold."""
