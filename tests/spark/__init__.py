"""A package, so that its conftest has another name than the one above."""
