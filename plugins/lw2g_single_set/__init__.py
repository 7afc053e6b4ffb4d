"""First-party baselines with a single set or none, which never grow."""
