"""First-party heads: classifiers in closed form, which predict in place of a trained one."""
