"""First-party retrieval strategies: prompt keys, centroids, a task-identity classifier, and the oracle."""
