"""Projects as Namespaces: LW-016."""

from datetime import UTC, datetime
from uuid import UUID

import orjson

from nodus_api.metav1 import fields, namespaces

CREATED = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
UID = UUID("7d5c9a3e-2f1b-4c8d-9e0a-1b2c3d4e5f60")


def test_a_project_is_a_namespace() -> None:
    assert orjson.loads(namespaces.namespace("demo", uid=UID, created=CREATED, rev=3)) == {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {
            "name": "demo",
            "uid": str(UID),
            "creationTimestamp": "2026-03-01T10:00:00Z",
            "labels": {"kubernetes.io/metadata.name": "demo"},  # as in Kubernetes
            "resourceVersion": "3",
        },
        "status": {"phase": "Active"},
    }


def test_its_row() -> None:
    now = datetime(2026, 3, 1, 15, 0, 0, tzinfo=UTC)
    assert namespaces.cells("demo", created=CREATED, now=now) == ["demo", "Active", "5h"]
    assert [column.name for column in namespaces.COLUMNS] == ["Name", "Status", "Age"]


def test_its_fields() -> None:
    assert set(namespaces.fields_of("demo")) == namespaces.SUPPORTED_FIELDS
    assert fields.parse("metadata.name=demo").matches(namespaces.fields_of("demo"))


def test_a_write_is_told_what_does_it() -> None:  # LW-010, LW-202
    made, changed = namespaces.read_only("create"), namespaces.read_only("delete")

    assert made.message == 'create is not supported on resources of kind "namespaces"'
    assert made.fix == "Make the project with `nodus project create NAME`."
    assert changed.fix == "Change the project with the command line: `nodus project --help`."
    assert made.headers["Allow"] == changed.headers["Allow"] == "GET, HEAD"
