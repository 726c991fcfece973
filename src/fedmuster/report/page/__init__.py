"""A comparison as one HTML file that needs nothing else: no network, no folder beside it."""

from fedmuster.report.page.html import to_html

__all__ = ["to_html"]
