"""First-party low-rank baselines: c-lora, inflora, hide-lora, sd-lora and slca-plus-plus."""
