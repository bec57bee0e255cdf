"""What is measured: one module for each kind of load; measure.py has what they share."""
