"""The page of a search: `nugget report` writes it once, `nugget watch` keeps it up to date."""

from nugget.report.search_page.builder import SearchPage

__all__ = ["SearchPage"]
