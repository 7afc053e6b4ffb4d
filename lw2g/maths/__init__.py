"""Pure functions of arrays and tensors: metrics, second moments, subspaces, hindrance."""
