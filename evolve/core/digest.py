"""Content hashes with unambiguous framing."""

import hashlib
import json
from typing import Any


def framed_digest(*parts: str | bytes) -> str:
    """SHA-256 (hex) over length-prefixed parts, so that no two part lists share a hash.

    >>> framed_digest("ab", "c") == framed_digest("a", "bc")
    False
    """
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return hasher.hexdigest()


def canonical_json(value: Any) -> str:
    """JSON text that is the same for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
