"""Charts of the lab as Vega-Lite specifications made from plain rows: no Streamlit, no physics, testable as data.

A chart module has one function for each picture; it returns a `Chart`. `parts.page.show` draws it. The dictionaries are
what Altair would write; made directly they cost a tenth of the time, and a redraw has half a second.
"""

from app_pages.parts.charts.base import Chart, Row, csv_text

__all__ = ["Chart", "Row", "csv_text"]
