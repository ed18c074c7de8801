"""Figures, pages and live views of results; `view` shows structures in a notebook."""

from __future__ import annotations

from nugget import lazy_names

__all__, __getattr__ = lazy_names(__name__, {"nugget.report.notebook": "view"})
