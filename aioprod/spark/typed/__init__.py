"""Decodes the values of records into typed columns, as Spark's ``from_json`` does.

- options.py: the options ``value.format`` and those that belong to it
- ddl.py: reads ``value.schema``
- decoder.py: decodes a column of values, with Arrow's JSON reader where its result is Spark's
- record_decoder.py: decodes any one value as Spark does
- json_tokens.py: the tokens of a value as Jackson reads them, which Spark parses with
- times.py: dates and timestamps in text

Imports only lead to what the processes need that use it; Spark starts one for each plan.
"""
