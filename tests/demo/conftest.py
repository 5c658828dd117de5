"""The fixtures of Spark's tests, for the application of the demo."""

from tests.spark.conftest import create_topic as create_topic
from tests.spark.conftest import session as session
