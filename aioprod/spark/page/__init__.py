"""A live web page of streaming queries, with the same numbers as Prometheus metrics.

    with ProgressPage("orders", port=8080) as page:
        spark.streams.addListener(ProgressListener(page.add))

- progress_page.py: what applications use
- history.py: the measurements: totals, the newest micro-batch of each query, and the last 600
- server.py: the HTTP server, in a thread
- metrics.py: metrics for Prometheus
- page.html: the page, one file without other resources
"""

from aioprod.spark.page.progress_page import ProgressPage
from aioprod.spark.page.server import PageError

__all__ = ["PageError", "ProgressPage"]
