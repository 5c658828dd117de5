"""A Kerberos server (MIT krb5kdc) on a free port of 127.0.0.1, in a temporary directory."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

REALM = "AIOPROD.TEST"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
_START_TIMEOUT_S = 20


def missing() -> str:
    """Return what these tests lack on this machine; empty if nothing."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if importlib.util.find_spec("gssapi") is None:
        absent.append('gssapi (pip install "aioprod[kerberos]")')
    return ", ".join(absent)


class Kdc:
    """The server and its files; nothing of the system's Kerberos is read or changed.

    Attributes:
        config: file for ``KRB5_CONFIG``.
        log: the requests of clients.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.config = directory / "krb5.conf"
        self.log = directory / "kdc.log"
        self._profile = directory / "kdc.conf"
        self._environment = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self._profile),
        }
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._write_files()

    def _write_files(self) -> None:
        # Name resolution of the machine plays no part: brokers are at 127.0.0.1.
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\n"
            "dns_lookup_realm = false\ndns_canonicalize_hostname = false\nrdns = false\n"
            "udp_preference_limit = 1\nkdc_timeout = 5000\n"
            f"[realms]\n{REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n}}\n"
        )
        data = self._directory
        self._profile.write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{self._port}\n"
            f"kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n{REALM} = {{\n  database_name = {data}/principal\n"
            f"  key_stash_file = {data}/stash\n  acl_file = {data}/acl\n"
            "  max_life = 1h\n  max_renewable_life = 2h\n}\n"
            f"[logging]\nkdc = FILE:{self.log}\nadmin_server = FILE:{data}/admin.log\n"
        )

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "made-up")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, and wait until it answers connections."""
        program = shutil.which("krb5kdc", path=_PATH)
        assert program is not None
        self._process = subprocess.Popen(
            [program, "-n", "-r", REALM, "-P", str(self._directory / "pid")],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                assert self._process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, "krb5kdc does not listen"
                time.sleep(0.02)

    def stop(self) -> None:
        """Kill the server. Do nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(10)

    def keytab(self, *principals: str) -> Path:
        """Add principals with random keys; return a file with the keys."""
        path = self._directory / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self.admin(f"addprinc -randkey {principal}")
            self.admin(f"ktadd -norandkey -k {path} {principal}")
        return path

    def admin(self, query: str) -> None:
        """Run a query of kadmin."""
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def ticket(self, principal: str, keytab: Path, *options: str) -> Path:
        """Log in as ``kinit`` does; return the file with the ticket."""
        path = self._directory / f"{principal.replace('/', '-')}.cache"
        self._run("kinit", "-c", str(path), "-k", "-t", str(keytab), *options, principal)
        return path

    def initial_tickets(self, principal: str) -> int:
        """Return how often a principal has logged in."""
        lines = self.log.read_text(errors="replace").splitlines()
        return sum(
            "AS_REQ" in line and "ISSUE:" in line and f" {principal}@{REALM} for krbtgt" in line
            for line in lines
        )

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout.decode()}"
