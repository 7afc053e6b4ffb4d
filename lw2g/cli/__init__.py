"""The command line parses arguments and prints results; the other layers do the work."""
