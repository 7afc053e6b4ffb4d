"""A page in the browser that teaches a model; it imports no torch."""
