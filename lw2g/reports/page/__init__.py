"""A report as one HTML page: numbers from records, figures, and the file around them."""
