"""First-party low-rank baselines: c-lora, inflora and hide-lora."""
