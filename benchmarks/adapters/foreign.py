"""Clients of other ecosystems, in the programs of ``benchmarks/programs``.

A worker starts its program once, so that it is warm; each measurement opens a new client in it.
"""

from __future__ import annotations

import atexit
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from benchmarks.adapters import installed
from benchmarks.adapters.adapter import DeliveryFailedError, Feature
from benchmarks.adapters.settings import Load, Settings, different_keys, different_values
from benchmarks.harness import Cost

WARM_UP_S = 5.0
_STOP_TIMEOUT_S = 5
running: dict[str, Program] = {}
"""The programs of this process, by the client's name."""


class ProgramError(Exception):
    """A program ended, or did not understand a request."""


class Program:
    """A running program.

    Attributes:
        versions: the versions of its client and runtime.
        sent_for_s: the seconds that it has spent sending.
        read_for_s: the seconds that it has spent reading.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._files = TemporaryDirectory(prefix="aioprod-benchmark-")
        self.versions = self._read()
        self.sent_for_s = self.read_for_s = 0.0

    def request(self, *words: object) -> list[str]:
        """Send a request and return the words of the response after the first.

        Raises:
            DeliveryFailedError: if the response is a failure.
            ProgramError: if the program has ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the program has ended: reading reports that
            print(*words, sep="\t", file=self._process.stdin, flush=True)
        kind, *response = self._read().split("\t")
        if kind == "failed":
            raise DeliveryFailedError(*response)
        return response

    def send(self, load: Load) -> Cost:
        """Send the records and wait for all deliveries."""
        began = time.monotonic()
        values = self._file(f"values-{load.value_size}", different_values(load.value_size))
        keys = self._file(f"keys-{load.keys}", different_keys(load.keys)) if load.keys else ""
        records, cpu_s, wall_s = self.request(
            "send", load.topic, load.records, values, keys, load.headers
        )
        self.sent_for_s += time.monotonic() - began
        return Cost(int(records), float(cpu_s), float(wall_s))

    def read(self, topic: str, partitions: int, records: int) -> tuple[Cost, int]:
        """Read records of a topic, and return their cost and the total size of their values."""
        began = time.monotonic()
        found, size, cpu_s, wall_s = self.request("read", topic, partitions, records)
        self.read_for_s += time.monotonic() - began
        return Cost(int(found), float(cpu_s), float(wall_s)), int(size)

    def transact(self, load: Load, records_each: int) -> Cost:
        """Send the records in transactions, and return their cost."""
        values = self._file(f"values-{load.value_size}", different_values(load.value_size))
        records, cpu_s, wall_s = self.request(
            "transact", load.topic, load.records, records_each, values
        )
        return Cost(int(records), float(cpu_s), float(wall_s))

    def close(self) -> None:
        """End the program: it ends with its standard input."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._files.cleanup()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ProgramError(f"the program ended with exit status {self._process.wait()}")
        return line.rstrip("\n")

    def _file(self, name: str, lines: Sequence[bytes]) -> Path:
        path = Path(self._files.name, name)
        if not path.exists():
            path.write_bytes(b"\n".join(lines))
        return path


class ForeignClient:
    """A client in a program, which measures itself."""

    name: ClassVar[str]
    lacks: ClassVar[frozenset[Feature]] = frozenset({"one record", "many tasks"})

    @staticmethod
    def command() -> Sequence[str]:
        """Return the command of the program; fetch and compile it if necessary.

        Raises:
            SetupError: if its ecosystem is not installed, or that fails.
        """
        raise NotImplementedError

    def describe(self) -> str:
        return self.program().versions

    async def start(self, settings: Settings) -> None:
        words: list[object] = ["start", settings.bootstrap_servers]
        if not settings.own_defaults:
            words += [
                settings.acks,
                settings.linger_ms,
                settings.batch_size,
                settings.compression_type,
                settings.buffer_memory,
            ]
        self.program().request(*words)

    async def stop(self) -> None:
        self.program().request("stop")

    async def send_all(self, load: Load) -> None:
        self.cost(load)

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        raise NotImplementedError

    def warm_up(self, load: Load) -> int:
        """Send such records, in a new program for at least ``WARM_UP_S`` seconds, for just-in-time
        compilers. Return the number of records.
        """
        sent = self.cost(load).records
        while self.program().sent_for_s < WARM_UP_S:
            sent += self.cost(load).records
        return sent

    def cost(self, load: Load) -> Cost:
        """Send the records, wait for all deliveries and return what they cost the program."""
        return self.program().send(load)

    @classmethod
    def program(cls) -> Program:
        """Return the program of this process, started if necessary."""
        if cls.name not in running:
            running[cls.name] = program = Program(cls.command())
            atexit.register(program.close)
        return running[cls.name]


class FranzGo(ForeignClient):
    """``client.Produce(...)`` in a loop, with a promise for each record."""

    name = "franz-go"
    command = staticmethod(installed.franz_go)


class Java(ForeignClient):
    """``producer.send(...)`` in a loop, with a callback for each record."""

    name = "java"
    command = staticmethod(installed.java)


class Platformatic(ForeignClient):
    """``producer.send(...)`` with lists as large as a batch, since each call is a request."""

    name = "platformatic"

    @staticmethod
    def command() -> Sequence[str]:
        return installed.node("platformatic")


class Kafkajs(ForeignClient):
    """Like ``Platformatic``. The only codec that it has is gzip."""

    name = "kafkajs"
    lacks = ForeignClient.lacks | {"codecs"}

    @staticmethod
    def command() -> Sequence[str]:
        return installed.node("kafkajs")
