"""Values with schemas of a Schema Registry, for reads and writes.

- options.py: the options ``value.format`` and ``schema.registry.*``
- schemas.py: asks the registry on the driver, once for a read or write
- columns.py: the types of Spark for a schema
- rows.py: decodes the values of a read, in tasks
- encoding.py: encodes the values of a write, in tasks
"""
