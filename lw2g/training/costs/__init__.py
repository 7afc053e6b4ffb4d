"""What a run would cost, measured before it is begun."""
