"""Decodes the values of records into typed columns, as Spark's ``from_json`` does.

- options.py: the options ``value.format`` and those that belong to it
- ddl.py: reads ``value.schema``
- decoder.py: decodes a column of values, with Arrow's JSON reader if its results are Spark's
- record_decoder.py: decodes any single value like Spark
- json_tokens.py: the tokens of a value as read by Jackson, which Spark uses
- times.py: dates and timestamps in text

Each module imports only what the processes that use it need: Spark starts one for each plan.
"""
