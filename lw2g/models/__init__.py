"""Trained models, for use."""
