"""The beginnings of the names of headers that say why and from where a record became a dead letter,
in the formats that aioprod writes.
"""

from __future__ import annotations

from typing import Final

#: Of processors, in retry topics and dead-letter topics.
PROCESSOR: Final = "aioprod."

#: Of Spark: the option ``deadLetterTopic``, and `aioprod.spark.pipeline.dead_letters`.
SPARK: Final = "dead-letter."

#: Says how often a dead letter was sent again. Unlike the others it stays with the record, even if
#: that fails again.
REDRIVES: Final = "aioprod.redrives"
