"""The measurements: one module for each kind of load; measure.py has their common parts."""
