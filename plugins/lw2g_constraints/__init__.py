"""First-party constraints: how gradients or updates are kept out of protected subspaces."""
