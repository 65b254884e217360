"""The requests for OpenAPI documents, and for answers that are large enough to be compressed."""

from collections.abc import Iterator
from itertools import product

from tests.differential.asking import Ask
from tests.differential.requests import METADATA, METADATA_LIST, TABLE, V1, N

INDEX = "/openapi/v3"
DOCUMENT = f"{INDEX}{V1}"
SWAGGER = "/openapi/v2"
PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
LARGE = f"{V1}/namespaces/large/attempts"
ENCODINGS = (
    "gzip",
    "deflate, gzip, br",
    "gzip, deflate",
    "identity",
    "deflate, br",
    "gzip;q=1.0",
    "gzip;q=0",
    "x-gzip",
    "",
)


def documents() -> Iterator[Ask]:
    """Give the index and the documents, by hash and by tag, in every form (LW-230 to LW-233)."""
    for path in (INDEX, DOCUMENT, f"{DOCUMENT}?hash=@hash@", f"{DOCUMENT}?hash=X"):
        yield Ask(target=path)
        yield Ask(target=path, method="HEAD")
        for accept in ("application/json", "*/*", "text/html", PROTOBUF, f"{PROTOBUF},*/*"):
            yield Ask(target=path, headers=(f"Accept: {accept}",))
        for tag in ("@tag@", '"x"', '"x", @tag@'):
            yield Ask(target=path, headers=(f"If-None-Match: {tag}",))
    for group_version in ("nodus.dev/v2", "unknown.dev/v1", "nodus.dev", "nodus.dev/v1/attempts"):
        yield Ask(target=f"{INDEX}/apis/{group_version}")
    yield Ask(target=SWAGGER, headers=("Accept: application/json",))
    yield Ask(target=SWAGGER, headers=("Accept: text/html",))
    yield Ask(target=SWAGGER, headers=("Accept: application/json", "If-None-Match: @swaggertag@"))


def compressed() -> Iterator[Ask]:
    """Give what is above 128 KiB in either server, and what is not (LW-057)."""
    large = (
        (LARGE, "application/json"),
        (f"{LARGE}/big-e1", "application/json"),
        (LARGE, TABLE),
        (f"{LARGE}?includeObject=Object", TABLE),
        (LARGE, METADATA_LIST),
        (f"{LARGE}/big-e1", METADATA),
        (f"{LARGE}?limit=1", "application/json"),
    )
    small = (
        (f"{LARGE}?includeObject=None", TABLE),
        (f"{LARGE}/small-e1", "application/json"),
        (f"{LARGE}?limit=x", "application/json"),
        (N, "application/json"),
    )
    for (path, accept), encoding in product((*large, *small), ENCODINGS):
        yield Ask(target=path, headers=(f"Accept: {accept}", f"Accept-Encoding: {encoding}"))
    for path, accept in large:
        yield Ask(
            target=path, method="HEAD", headers=(f"Accept: {accept}", "Accept-Encoding: gzip")
        )
