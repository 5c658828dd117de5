"""Answers that no service should give, and a server that gives them."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.plain_server import serving

SECRET = "hunter2-swordfish"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202eCRITICAL forged line\x00\x7f"

BODIES: dict[str, bytes] = {
    "null": b"null",
    "empty": b"",
    "true": b"true",
    "list": b"[]",
    "object": b"{}",
    "text": b'"x"',
    "number": b"5",
    "negative": b"-5",
    "float": b"1.5",
    "list of null": b"[null]",
    "list of numbers": b"[1, 2]",
    "list of booleans": b"[true]",
    "list of big numbers": b"[99999999999999999999]",
    "list of lists": b"[[[]]]",
    "list of objects": b'[{"subject": 1, "version": "x"}]',
    "wrong types": json.dumps(
        {
            "id": "x",
            "schema": 5,
            "version": [],
            "subject": {},
            "references": 7,
            "compatibilityLevel": [],
            "mode": {},
            "is_compatible": "false",
            "access_token": ["a"],
            "expires_in": {},
        }
    ).encode(),
    "wrong parts": json.dumps(
        {
            "id": True,
            "schema": '"string"',
            "schemaType": 1,
            "version": 1e400,
            "references": [{"name": 1}],
            "is_compatible": True,
            "messages": {"a": 1},
            "access_token": "x",
            "expires_in": -1e400,
        }
    ).encode(),
    "half of a pair": b'{"schema": "\\ud800", "id": 1, "version": 1, "mode": "\\udfff"}',
    "half of a pair in a list": b'["\\ud800"]',
    "half of a pair in a reference": b'{"schema": "1", "id": 1, "version": 1,'
    b' "references": [{"name": "a", "subject": "\\ud800", "version": 1}]}',
    "deep list": b"[" * 200_000,
    "deep object": b'{"schema":' * 100_000,
    "not JSON": b"<html><h1>Sign in</h1></html>",
    "UTF-16": "{}".encode("utf-16"),
    "not a number": b"NaN",
    "many digits": b"9" * 10_000,
    "numbers of many digits": b'{"id": %s, "version": 1, "schema": "1"}' % (b"9" * 4_000),
    "bytes": bytes(range(256)),
}

REASONS: dict[str, bytes] = {
    "escapes": json.dumps(
        {"message": ESCAPES, "error": "x", "error_description": ESCAPES}
    ).encode(),
    "long": json.dumps({"message": "x" * 1_000_000, "error": "x" * 1_000_000}).encode(),
    "long escapes": json.dumps({"message": "\x9b" * 100_000, "error": "\x9b" * 99_999}).encode(),
    "our secret": json.dumps(
        {"message": f"password={SECRET}", "error": SECRET, "error_description": f"a{SECRET}b"}
    ).encode(),
    "our secret at the cut": json.dumps(
        {"message": "x" * 490 + SECRET, "error": "x" * 190 + SECRET}
    ).encode(),
    "wrong types": json.dumps(
        {"message": ["a"], "error_code": "b", "error": {}, "error_description": 1}
    ).encode(),
    "a code of many digits": b'{"error_code": %s}' % (b"9" * 4_000),
    "deep": b"[" * 200_000,
    "bytes": bytes(range(256)),
}


def response(
    body: bytes, status: bytes = b"200 OK", headers: bytes = b"Content-Type: application/json\r\n"
) -> bytes:
    """Return an HTTP response."""
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, headers, len(body), body)


def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(b" " * (20 << 20)) + packer.flush()


RESPONSES: dict[str, bytes] = {
    "bomb": response(_bomb(), headers=b"Content-Encoding: gzip\r\n"),
    "no gzip": response(b"xxxx", headers=b"Content-Encoding: gzip\r\n"),
    "unknown coding": response(b"xxxx", headers=b"Content-Encoding: snake-oil\r\n"),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    "no HTTP": b"\0\xff\x16\x03" * 50,
    "status 999": response(b"{}", b"999 X"),
    "status 204": b"HTTP/1.1 204 X\r\n\r\n",
    "reason with escapes": response(b"", b"403 \x1b[31m\xc2\x9b" + SECRET.encode()),
    "reason of bytes": response(b"", b"403 \xff\xfe\x9b"),
    "redirect to itself": response(b"", b"307 T", b"Location: ?\r\n"),
    "redirect to nothing": response(b"", b"302 F", b"Location: \r\n"),
    "redirect to no URL": response(b"", b"307 F", b"Location: http://[\x9b/\r\n"),
    "redirect with escapes": response(
        b"", b"307 F", b"Location: http://x/\xc2\x9b31m?" + SECRET.encode() + b"\r\n"
    ),
    "redirect to a file": response(b"", b"307 F", b"Location: file:///etc/passwd\r\n"),
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
}


class OddServer:
    """Answers each request with the same bytes.

    Attributes:
        answer: these bytes.
        heads: heads of the requests.
        url: its address.
    """

    def __init__(self) -> None:
        self.answer = b""
        self.heads: list[str] = []
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[OddServer]:
        async with serving(self._serve) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            _, _, rest = head.lower().partition("content-length:")
            await reader.readexactly(int(rest.split("\r\n")[0] or 0))
            answer = self.answer
            writer.write(answer)
            if answer in (RESPONSES["cut"], RESPONSES["no HTTP"]):
                return
            await writer.drain()


def check_text(error: BaseException) -> None:
    """Check that the text of an error can be shown: short, printable, without the secret."""
    for text in (str(error), repr(error)):
        assert text.isprintable(), repr(text)
        assert len(text) < 3_000
        assert SECRET not in text
        assert SECRET[:8] not in text, "a part of the secret"
