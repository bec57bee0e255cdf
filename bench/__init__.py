"""The benchmark: bench/run measures, stock beside herald."""
