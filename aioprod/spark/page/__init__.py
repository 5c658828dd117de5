"""A live web page of streaming queries, with the same numbers as Prometheus metrics.

    with ProgressPage("orders", port=8080) as page:
        spark.streams.addListener(ProgressListener(page.add))

- progress_page.py: the interface for applications
- history.py: the measurements (totals, the newest micro-batch of each query, and the last 600)
- metrics.py: metrics for Prometheus
- page.html: the page, one file without other resources
"""

from aioprod.page_server import PageError
from aioprod.spark.page.progress_page import ProgressPage

__all__ = ["PageError", "ProgressPage"]
