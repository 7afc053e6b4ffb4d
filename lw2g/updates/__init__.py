"""Trained models that go on learning: start, learn, unlearn."""
