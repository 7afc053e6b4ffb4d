"""What plugin authors test with: hypothesis strategies and the contract kit (needs the ``test`` extra)."""
