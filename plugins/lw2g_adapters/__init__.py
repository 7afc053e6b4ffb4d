"""Baselines whose sets are adapters parallel to the MLP: ease, tuna, mos, sema."""
