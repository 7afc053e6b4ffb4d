"""First-party benchmarks: digits and glyphs (embedded), image folders and CIFAR-100."""
