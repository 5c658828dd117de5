"""A Schema Registry in the test process. Requires the extra ``schema-registry``."""

from __future__ import annotations

from aioprod.testing.registry.embedded import EmbeddedSchemaRegistry, SeenCall

__all__ = ["EmbeddedSchemaRegistry", "SeenCall"]
