"""A report as one page of HTML: numbers out of records, figures that draw them, and the file around both."""
