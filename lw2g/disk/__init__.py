"""What a run leaves in its directory: checkpoints, ledger, record, and whether they hold."""
