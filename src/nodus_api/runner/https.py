"""One POST over HTTPS; a module of its own, because the local supplier's runners never need it."""

import http.client
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    most: int,
    ca: Path | None,
) -> tuple[int, bytes]:
    """Return status and content, at most `most` bytes of it.

    At most `seconds` without a byte. Raises OSError, and ValueError for what is no HTTP.
    """
    address = urlsplit(url)
    context = ssl.create_default_context(cafile=ca)
    connection = http.client.HTTPSConnection(
        address.hostname or "", address.port, timeout=seconds, context=context
    )
    try:
        connection.request("POST", address.path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read(most)
    except http.client.HTTPException as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
