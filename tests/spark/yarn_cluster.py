"""Hadoop's mini cluster: a YARN resource manager and a node manager in one Java process, which
start containers as separate processes. They listen on 127.0.0.1 only.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self

import py4j.java_gateway  # type: ignore[import-untyped]

from aioprod.demo.spark_cluster import spark_home
from aioprod.spark.session import SHORT_RUN_JAVA_OPTIONS
from aioprod.testing.jars import Jar, fetch, ways
from aioprod.testing.java import find_java, java_home_for_spark

_LOCK_FILE = Path(__file__).with_name("yarn_jars_lock.json")
_SPARKS_JARS = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jakarta.servlet-api",
    "jcl-over-slf4j",
    "log4j",
    "slf4j",
)
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = yarn.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{1}: %m%n
"""
_MEMORY_MB = 4096
_START_LIMIT_MS = 120_000
_STOP_LIMIT_S = 60
_SETTINGS = {
    "yarn.nodemanager.bind-host": "127.0.0.1",
    "yarn.nodemanager.hostname": "127.0.0.1",
    "yarn.resourcemanager.bind-host": "127.0.0.1",
    "yarn.resourcemanager.hostname": "127.0.0.1",
    "yarn.nodemanager.resource.memory-mb": str(_MEMORY_MB),
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.delete.debug-delay-sec": "600",  # keeps the logs of containers
    # Measures of a shared machine, which say nothing about the containers.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    # One queue; the application masters may use all of it.
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
}


class YarnCluster:
    """The cluster of a context manager's block. It ends with the block, or with this process."""

    def __init__(self, directory: Path) -> None:
        """Keep the containers' files, and the cluster's settings and log, in ``directory``."""
        self._directory = directory
        self._settings = directory / "settings"
        self._gateway: Any = None
        self._cluster: Any = None

    def environment(self, path: str) -> dict[str, str]:
        """Return variables with which `spark-submit` finds the cluster, and Spark's jars on it.
        ``path`` is PATH in the containers.
        """
        java = str(java_home_for_spark())
        defaults = {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": f"file:{self._directory}/staging",
            "spark.yarn.appMasterEnv.JAVA_HOME": java,
            "spark.executorEnv.JAVA_HOME": java,
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.yarn.appMasterEnv.PATH": path,
            "spark.executorEnv.PATH": path,
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.yarn.am.memory": "512m",
            "spark.driver.memory": "512m",
        }
        lines = [f"{name} {value}\n" for name, value in defaults.items()]
        (self._settings / "spark-defaults.conf").write_text("".join(lines))
        return {"HADOOP_CONF_DIR": str(self._settings), "SPARK_CONF_DIR": str(self._settings)}

    def __enter__(self) -> Self:
        self._settings.mkdir(parents=True)
        port = self._launch()
        try:
            self._start(port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._cluster is not None:
                self._cluster.stop()  # and its containers
        finally:
            if self._gateway is not None:
                self._gateway.shutdown()
            self._process.stdin.close()  # ends the process
            self._process.wait(_STOP_LIMIT_S)
            self._process.stdout.close()

    def _launch(self) -> int:
        logging = self._directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        port: int
        port, self._process = py4j.java_gateway.launch_gateway(
            classpath=os.pathsep.join(map(str, _jars())),
            javaopts=[
                "-Xmx512m",
                f"-Dlog4j2.configurationFile={logging}",
                *SHORT_RUN_JAVA_OPTIONS.split(),
            ],
            die_on_exit=True,
            java_path=str(find_java()),
            cwd=str(self._directory),
            return_proc=True,
        )
        return port

    def _start(self, port: int) -> None:
        parameters = py4j.java_gateway.GatewayParameters(port=port)
        self._gateway = py4j.java_gateway.JavaGateway(gateway_parameters=parameters)
        java = self._gateway.jvm
        yarn = java.org.apache.hadoop.yarn
        settings = yarn.conf.YarnConfiguration()
        for name, value in _SETTINGS.items():
            settings.set(name, value)
        cluster = yarn.server.MiniYARNCluster("yarn", 1, 1, 1)  # one node, with one directory each
        self._cluster = cluster
        cluster.init(settings)
        cluster.start()
        assert cluster.waitForNodeManagersToConnect(_START_LIMIT_MS)
        file = java.java.io.FileOutputStream(str(self._settings / "yarn-site.xml"))
        cluster.getConfig().writeXml(file)
        file.close()


def _jars() -> list[Path]:
    """Return the jars of the cluster. The first call downloads 60 MB.

    Raises:
        SetupError: if they can't be downloaded or a checksum does not match.
    """
    content: dict[str, dict[str, str]] = json.loads(_LOCK_FILE.read_text())
    ((name, sums),) = content.items()
    sparks = [jar for each in _SPARKS_JARS for jar in (spark_home() / "jars").glob(f"{each}-*.jar")]
    client = sparks[0].stem.replace("client-api", "minicluster")
    assert client == name, f"PySpark contains another version of Hadoop than {_LOCK_FILE}"
    return [*fetch(name, [Jar(path, sum_) for path, sum_ in sums.items()], ways()), *sparks]
