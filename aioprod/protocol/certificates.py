"""The subject of an X.509 certificate, in the format of Java and Kafka (RFC 2253)."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SEQUENCE, _VERSION = 0x30, 0xA0
_LONG = 0x80
_KEYWORDS = {
    "550403": "CN",
    "550406": "C",
    "550407": "L",
    "550408": "ST",
    "550409": "STREET",
    "55040a": "O",
    "55040b": "OU",
    "0992268993f22c640119": "DC",
    "0992268993f22c640101": "UID",
}
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
_SUBJECT_AT = 4  # after serial number, algorithm, issuer and validity


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, such as ``CN=alice,O=Example``. The default
    principal of a TLS client in Kafka is ``User:`` followed by its subject.

    Raises:
        ValueError: if the bytes are not a certificate.
    """
    try:
        content = _parts(_only(_parts(_only(_parts(certificate)))))
        first = next(content)
        fields = list(content) if first[0] == _VERSION else [first, *content]
        names = [_name(part) for _, part, _ in _parts(fields[_SUBJECT_AT][1])]
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("not a certificate in DER") from error
    return ",".join(reversed(names))


def _parts(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the elements of a DER encoding: tag, content, and the whole encoded element."""
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size & _LONG:
            width = size & ~_LONG
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        if at + size > len(data):
            raise IndexError("the data is truncated")
        yield tag, data[at : at + size], data[start : at + size]
        at += size


def _only(parts: Iterator[tuple[int, bytes, bytes]]) -> bytes:
    """Return the content of the first element, which must be a sequence."""
    tag, content, _ = next(parts)
    if tag != _SEQUENCE:
        raise IndexError(f"tag {tag} is not a sequence")
    return content


def _name(attributes: bytes) -> str:
    return "+".join(_attribute(content) for _, content, _ in _parts(attributes))


def _attribute(content: bytes) -> str:
    (_, oid, _), (kind, value, encoded) = _parts(content)
    keyword = _KEYWORDS.get(oid.hex())
    if keyword is None or kind not in _ENCODINGS:
        return f"{keyword or _dotted(oid)}=#{encoded.hex()}"
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value.decode(_ENCODINGS[kind]))
    text = re.sub(r"^[ #]|(?<=.) $", r"\\\g<0>", text)
    return f"{keyword}={text}"


def _dotted(oid: bytes) -> str:
    numbers = [oid[0] // 40, oid[0] % 40]
    number = 0
    for byte in oid[1:]:
        number = number << 7 | byte & 0x7F
        if not byte & _LONG:
            numbers.append(number)
            number = 0
    return ".".join(map(str, numbers))
