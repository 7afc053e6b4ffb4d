"""Baselines whose sets are adapters beside the MLP: ease, tuna, mos, sema."""
