"""Files that `stepwell init` writes."""
