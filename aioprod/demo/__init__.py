"""The demo (``aioprod demo``): sends real flights through the producer, a broker and Spark, and
draws their delays.
"""
