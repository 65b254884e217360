"""One body per shape, made from fixed values; `python -m tests.golden.shapes` writes them anew.

A difference is reviewed like code: it is what every client will see.
"""

from collections.abc import Iterator
from pathlib import Path

import orjson
from tests.attempts.examples import EXAMPLES, NOW
from tests.metav1.each_error import EACH

from nodus_api.attempts import columns
from nodus_api.attempts.projection import metadata_of, render, splice
from nodus_api.attempts.resource import API_RESOURCE, GROUP_VERSION, KIND, LIST_KIND
from nodus_api.metav1 import discovery, namespaces, table, watch_event
from nodus_api.metav1.errors import Expired
from nodus_api.metav1.objects import ListMeta, ShardInfo
from nodus_api.metav1.partial import LIST_END, indented, list_head, partial_object
from nodus_api.metav1.watch_event import EventType

BODIES = Path(__file__).parent / "bodies"
META = "meta.k8s.io/v1"
RESOURCES = (namespaces.API_RESOURCE, API_RESOURCE)
DOCUMENTS = {
    name: splice(render(view).doc, 100 + at) for at, (name, view) in enumerate(EXAMPLES.items())
}
METADATA = ListMeta(
    resource_version="200",
    continue_="dG9rZW4",
    remaining_item_count=7,
    shard_info=ShardInfo(
        selector="shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    ),
)


def row(doc: bytes) -> bytes:
    """The row of a document, with its metadata beside the cells."""
    parsed = orjson.loads(doc)
    return table.row(
        columns.cells(parsed, NOW),
        partial_object(metadata_of(doc)),
        completed=columns.completed(parsed),
    )


def watch() -> bytes:
    """A watch from its first line to its error."""
    doc = DOCUMENTS["running"]
    return b"".join(
        (
            watch_event.frame(EventType.ADDED, doc),
            watch_event.bookmark(KIND, GROUP_VERSION, 104, ends_initial=True),
            watch_event.frame(EventType.MODIFIED, DOCUMENTS["succeeded"]),
            watch_event.frame(EventType.DELETED, splice(render(EXAMPLES["succeeded"]).doc, 205)),
            watch_event.bookmark(KIND, GROUP_VERSION, 210),
            watch_event.error(Expired.watch(1, 5).to_status(request_id="0c8f")),
        )
    )


def table_watch() -> bytes:
    """A Table watch: columns in its first line only."""
    named = table.definitions(columns.COLUMNS)
    width = len(columns.COLUMNS)
    lines = (
        watch_event.table_event(
            EventType.ADDED, row(DOCUMENTS["running"]), 104, api_version=META, columns=named
        ),
        watch_event.table_bookmark(
            104,
            api_version=META,
            columns=None,
            width=width,
            kind=KIND,
            kind_version=GROUP_VERSION,
            ends_initial=True,
        ),
        watch_event.table_event(
            EventType.MODIFIED, row(DOCUMENTS["succeeded"]), 107, api_version=META, columns=None
        ),
    )
    return b"".join(lines)


def shapes() -> Iterator[tuple[str, bytes]]:
    """Every shape: the name of its file and its body. Single objects are indented, to be read."""
    for name, doc in DOCUMENTS.items():
        yield f"attempt-{name}.json", indented(doc)
    for name, error in EACH.items():
        status = error.to_status(request_id="0c8f", public_url="https://nodus.test")
        yield f"status-{name}.json", indented(status.encode())
    docs = b",".join((DOCUMENTS["queued"], DOCUMENTS["failed-lost"]))
    yield "list.json", list_head(LIST_KIND, GROUP_VERSION, METADATA) + docs + LIST_END
    metadata = b",".join(partial_object(metadata_of(doc)) for doc in DOCUMENTS.values())
    head = list_head("PartialObjectMetadataList", META, METADATA)
    yield "partial-list.json", head + metadata + LIST_END
    rows = b",".join(row(doc) for doc in DOCUMENTS.values())
    head = table.head(META, METADATA, table.definitions(columns.COLUMNS))
    yield "table.json", indented(head + rows + LIST_END)
    yield "watch.jsonl", watch()
    yield "watch-table.jsonl", table_watch()
    yield "discovery-groups.json", discovery.group_list(RESOURCES).body
    yield "discovery-resources.json", discovery.resource_list(GROUP_VERSION, RESOURCES).body
    yield "discovery-aggregated.json", discovery.aggregated(RESOURCES).body
    yield "discovery-core.json", discovery.aggregated(RESOURCES, core=True).body


def write() -> None:
    """Write every body, and remove what is no shape any more."""
    wanted = dict(shapes())
    BODIES.mkdir(exist_ok=True)
    for old in BODIES.iterdir():
        if old.name not in wanted:
            old.unlink()
    for name, body in wanted.items():
        (BODIES / name).write_bytes(body)


if __name__ == "__main__":
    write()
