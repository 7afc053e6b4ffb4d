"""First-party prompt baselines: dual-prompt, s-prompt-plus-plus and hide-prompt."""
