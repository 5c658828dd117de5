"""Measure everything that docs/performance.md shows, and write the page."""
