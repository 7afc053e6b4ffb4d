"""The command line: parses and prints; what it does lies in the other layers."""
