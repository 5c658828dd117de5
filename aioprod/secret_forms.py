"""The forms in which a server may repeat a secret that it was sent."""

from __future__ import annotations

import base64
import json


def secret_forms(*secrets: str | None) -> tuple[str, ...]:
    """Return secrets as a server may repeat them: plain, and encoded for a URL, for JSON and in
    Base64.
    """
    from urllib.parse import quote, quote_plus  # takes milliseconds, and most clients have none

    forms = set()
    for secret in filter(None, secrets):
        data = secret.encode("utf-8", "surrogatepass")
        forms |= {
            secret,
            quote(data, safe=""),
            quote_plus(data),
            json.dumps(secret)[1:-1],
            base64.b64encode(data).decode(),
            base64.urlsafe_b64encode(data).decode().rstrip("="),
        }
    return tuple(forms)
