"""From names, files and options to one complete experiment; everything here is free of torch."""
