"""First-party trackers that need an optional package: TensorBoard and MLflow."""
