"""Files that plugins read (images, features, text vectors), augmentation, the usual test transform."""
