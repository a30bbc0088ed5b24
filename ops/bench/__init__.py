"""Measurements: none of them is needed to run the product."""
