"""Uncertainties of a sparse regression: label-noise committees and the projected process."""
