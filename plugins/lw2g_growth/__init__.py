"""First-party growth policies: when a task gets a parameter set of its own."""
