"""What several methods share, for plugins too: heads, schedules, prefixes, LoRA, replay, statistics."""
