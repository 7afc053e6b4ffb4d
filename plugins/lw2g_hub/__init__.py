"""Models on the hub: push one with a card from its record, pull one that others have pushed."""
