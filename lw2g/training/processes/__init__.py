"""Several processes that work on one run together."""
