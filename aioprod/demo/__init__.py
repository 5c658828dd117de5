"""The demo: real flights through the producer, a broker and Spark, and a picture of their delays
(``aioprod demo``).
"""
