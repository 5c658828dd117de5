"""Values with schemas of a Schema Registry, for reads and writes.

- options.py: the options ``value.format`` and ``schema.registry.*``
- schemas.py: requests the schema from the registry on the driver, once for a read or write
- columns.py: Spark's types for a schema
- rows.py: decodes the values of a read, in tasks
- encoding.py: encodes the values of a write, in tasks
"""
