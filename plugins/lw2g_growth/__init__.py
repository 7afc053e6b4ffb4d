"""First-party growth: measures of how a task stands to old ones, and policies that decide by them."""
