"""Runs the pipeline on a Spark session in a separate Java process that ends in bounded time."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioprod.demo.options import DemoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aioprod.demo.pipeline import PipelineResult
    from aioprod.spark.progress import QueryProgress

_JVM_END_LIMIT_S = 5.0
_TERMINATE_LIMIT_S = 2.0


class SparkJob:
    """One run of the pipeline. Call `run`, which blocks, in a thread, and `stop` and `kill` from
    any other one.
    """

    def __init__(self, work_dir: Path, log: Path, *, follow: bool) -> None:
        """Keep Parquet, checkpoints and Spark's temporary files in ``work_dir`` and Java's output
        in ``log``; ``follow`` continues reading until `stop`.
        """
        self._follow = follow
        self._work_dir = work_dir
        self._log = log
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self,
        servers: str,
        topic: str,
        sink_topic: str,
        *,
        on_started: Callable[[], None],
        on_progress: Callable[[QueryProgress], None],
    ) -> PipelineResult:
        """Start Spark, run the pipeline and end Spark.

        Raises:
            DemoError: if Java or Spark did not start or the pipeline failed; the message names the
                log.
        """
        from aioprod.demo.pipeline import PipelineOptions, run_pipeline
        from aioprod.spark.pipeline.running import failure_reason

        gateway: Any = None
        session: SparkSession | None = None
        try:
            gateway = self._launch()
            session = self._session()
            on_started()
            options = PipelineOptions(
                bootstrap_servers=servers,
                out_dir=str(self._work_dir / "parquet"),
                checkpoint_dir=str(self._work_dir / "checkpoint"),
                topic=topic,
                sink_topic=sink_topic,
            )
            return run_pipeline(
                session, options, follow=self._follow, stop=self._stop, on_progress=on_progress
            )
        except Exception as error:
            text = str(error)  # asks Java, which is stopped below
            with self._log.open("a", encoding="utf-8") as log:
                log.write(text)
            raise DemoError(
                f"Spark failed: {failure_reason(text) or type(error).__name__} (more in "
                f"{self._log})"
            ) from error
        finally:
            if session is not None and not self._ended():
                session.stop()
            if gateway is not None:
                self._end(gateway)

    def stop(self) -> None:
        """End the pipeline after its current micro-batch; `run` then returns the results so far."""
        self._stop.set()

    def kill(self) -> None:
        """End Java and its Python workers within two seconds; a waiting `run` fails."""
        _expect_lost_connections()
        process = self._process
        if process is None or process.poll() is not None:
            # or Java is starting: it ends when our end of its standard input is closed
            return
        process.terminate()  # Spark removes its temporary files
        try:
            process.wait(_TERMINATE_LIMIT_S)
        except subprocess.TimeoutExpired:
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _launch(self) -> Any:
        """Start Java in a process group of its own, so that the terminal's Ctrl-C comes to us
        alone, and with its output in the log.
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        from aioprod.spark.session import SHORT_RUN_JAVA_OPTIONS, configure
        from aioprod.spark.spark_home import class_path_settings

        configure()
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        conf = SparkConf(loadDefaults=False)
        for name, value in (
            ("spark.driver.memory", "1g"),
            ("spark.driver.extraJavaOptions", SHORT_RUN_JAVA_OPTIONS),
            ("spark.local.dir", str(self._work_dir / "local")),
            ("spark.ui.showConsoleProgress", "false"),
            *class_path_settings().items(),
        ):
            conf.set(name, value)
        with self._log.open("wb") as log:
            arguments = {
                "stdout": log,
                "stderr": subprocess.STDOUT,
                "start_new_session": os.name == "posix",
            }
            gateway = launch_gateway(conf=conf, popen_kwargs=arguments)  # type: ignore[no-untyped-call]
        self._process = gateway.proc
        SparkContext._ensure_initialized(gateway=gateway)
        return gateway

    def _session(self) -> SparkSession:
        from aioprod.spark.session import spark_session_builder

        builder = spark_session_builder(app_name="aioprod demo").config(
            "spark.sql.warehouse.dir", str(self._work_dir / "warehouse")
        )
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        return session

    def _end(self, gateway: Any) -> None:
        from pyspark import SparkContext

        SparkContext._gateway = None
        SparkContext._jvm = None
        gateway.shutdown()
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()  # Java ends with it
        try:
            process.wait(_JVM_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait(_JVM_END_LIMIT_S)


def _expect_lost_connections() -> None:
    """py4j and Spark's server for accumulators would each print a traceback when Java is gone. What
    comes after `kill` is only the end.
    """
    from pyspark import SparkContext

    logging.disable(logging.CRITICAL)  # py4j logs to the root logger
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
