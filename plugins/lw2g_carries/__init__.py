"""First-party carries: what moves statistics of old classes along with features that drift."""
