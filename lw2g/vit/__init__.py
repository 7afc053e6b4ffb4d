"""Frozen, unmodified ViTs: loading, reading activations out, and injecting parameters for one call."""
