"""Low-rank adapters of Hugging Face peft as a baseline of lw2g."""
