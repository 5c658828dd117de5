"""A generated project on Kubernetes, with the lines of docs/spark-deploy.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioprod.demo.spark_cluster import spark_environment
from aioprod.spark.session import SHORT_RUN_JAVA_OPTIONS
from aioprod.testing import EmbeddedCluster
from tests.waiting import programs_per_core

from .kubernetes_cluster import KubernetesCluster
from .source_topics import send
from .test_new_project import EVENT, ROOT, logs_in, new

PAGE = ROOT / "docs" / "spark-deploy.md"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def image_of(project: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The files and the environment of the project's image."""
    dockerfile = (project / "Dockerfile").read_text(encoding="utf-8")
    (directory,) = re.findall(r"WORKDIR (\S+)\nCOPY pyproject.toml", dockerfile)
    assert f"COPY {project.name.replace('-', '_')} " in dockerfile
    installed = [str(each) for each in (ROOT, ROOT / "aioprod/spark/registration", project)]
    variables = {
        **spark_environment(),
        "PATH": PATH,
        "PYTHONPATH": os.pathsep.join(installed),
        "JDK_JAVA_OPTIONS": SHORT_RUN_JAVA_OPTIONS,
    }
    return {directory: project}, variables


def submitted_lines(**values: str) -> str:
    page = PAGE.read_text(encoding="utf-8")
    lines: str
    (lines,) = [
        block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "k8s://" in block
    ]
    for given, used in values.items():
        assert given in lines
        lines = lines.replace(given, used)
    return lines


def variables(pod: dict[str, Any]) -> dict[str, str | None]:
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.usefixtures("quick_python")
@pytest.mark.timeout(500)
def test_the_lines_for_kubernetes_run_the_job(tmp_path: Path) -> None:
    """Spark's client creates the pods, which run as processes of this machine: the driver's with
    the job, the executors' in the zone and with its name for aioprod.
    """
    assert new(tmp_path, "orders-by-hour") == 0
    project = tmp_path / "orders-by-hour"
    with (
        EmbeddedCluster.in_thread() as broker,
        KubernetesCluster(tmp_path / "cluster", *image_of(project)) as cluster,
    ):
        broker.create_topic("orders-by-hour", 2)
        for value in (EVENT % ("1", "10:00:10"), EVENT % ("2", "11:00:00"), "no event"):
            send(broker.bootstrap_servers, "orders-by-hour", value=[value.encode()])
        lines = submitted_lines(
            **{
                "k8s://https://HOST:443": f"{cluster.master} {' '.join(cluster.settings)}",
                "REGISTRY": "registry.test",
                "spark.executor.instances=2": "spark.executor.instances=1",
                "HOST:9092": broker.bootstrap_servers,
                "DIRECTORY": str(tmp_path / "checkpoint"),
                "ZONE": "zone-1",
            }
        )
        done = subprocess.run(
            ["bash", "-euc", lines],
            env={**spark_environment(), "PATH": PATH, "JDK_JAVA_OPTIONS": SHORT_RUN_JAVA_OPTIONS},
            capture_output=True,
            text=True,
            timeout=480 * programs_per_core(),
            check=False,
        )
        report = done.stdout + done.stderr + logs_in(tmp_path)
        driver, *executors = cluster.objects.ever("pods")
        assert done.returncode == 0 and executors, report
        totals = broker.records("orders-by-hour.totals", committed_only=True)
        letters = broker.records("orders-by-hour.dead-letters", committed_only=True)
    assert [json.loads(record.value or b"")["sales"] for record in totals] == [1]
    assert [record.value for record in letters] == [b"no event"]
    assert driver["spec"]["serviceAccountName"] == "spark"
    assert "AIOPROD_CLIENT_RACK" not in variables(driver)
    for pod in executors:
        assert pod["spec"]["nodeSelector"] == {"topology.kubernetes.io/zone": "zone-1"}
        assert variables(pod)["AIOPROD_CLIENT_RACK"] == "zone-1"
    for pod in (driver, *executors):
        (container,) = pod["spec"]["containers"]
        assert container["image"] == "registry.test/orders-by-hour"
