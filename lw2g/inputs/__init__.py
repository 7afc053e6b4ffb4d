"""What benchmarks share: files of images and of features, augmentation, the usual test transform."""
