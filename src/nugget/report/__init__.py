"""Figures and pages made from results; `view` shows structures in a notebook."""

from nugget import lazy_names

__all__, __getattr__ = lazy_names(__name__, {"nugget.report.notebook": "view"})
