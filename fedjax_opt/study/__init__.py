"""Studies: methods tuned alike, measured with fresh seeds, and reported."""
