"""Pure functions of tensors behind evidence and protection: second moments, subspaces, hindrance."""
