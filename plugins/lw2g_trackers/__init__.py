"""First-party trackers that need an optional package: TensorBoard, MLflow, Weights & Biases."""
