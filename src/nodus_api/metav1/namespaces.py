"""A project as a core Namespace, so that kubectl, kubens, k9s and kopf work alone (LW-016).

Served stand-alone only; behind aggregation the cluster has its own namespaces.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import orjson

from nodus_api.metav1.discovery import APIResource
from nodus_api.metav1.errors import GroupResource, MethodNotAllowed
from nodus_api.metav1.fields import NAME
from nodus_api.metav1.table import Cell, Column, age
from nodus_api.metav1.times import format_time

KIND = "Namespace"
LIST_KIND = "NamespaceList"
NAMESPACES = GroupResource(group="", resource="namespaces")
API_RESOURCE = APIResource(
    group="",
    version="v1",
    name="namespaces",
    singular="namespace",
    kind=KIND,
    namespaced=False,
    verbs=("get", "list", "watch"),
    short_names=("ns",),
    stored=False,
)
NAME_LABEL = "kubernetes.io/metadata.name"
SELECTABLE = ("status.phase",)
"""The selectable fields, without the name, which always is."""
SUPPORTED_FIELDS = frozenset({NAME, *SELECTABLE})
COLUMNS = (
    Column(name="Name", format="name", description="The project's name."),
    Column(name="Status", description="Always Active."),
    Column(name="Age", description="How long ago the project was created."),
)


def namespace(name: str, *, uid: UUID, created: datetime, rev: int) -> bytes:
    """Return a project as a Namespace at an access revision."""
    return orjson.dumps(
        {
            "kind": KIND,
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "uid": str(uid),
                "creationTimestamp": format_time(created),
                "labels": labels_of(name),
                "resourceVersion": str(rev),
            },
            "status": {"phase": "Active"},
        }
    )


def read_only(verb: str) -> MethodNotAllowed:
    """Return the answer to a write on namespaces, with the command that does it (LW-010)."""
    instead = (
        "Make the project with `nodus project create NAME`."
        if verb == "create"
        else "Change the project with the command line: `nodus project --help`."
    )
    return MethodNotAllowed(verb, NAMESPACES, fix=instead)


def labels_of(name: str) -> dict[str, str]:
    """Return a project's labels: the one that Kubernetes gives each namespace."""
    return {NAME_LABEL: name}


def fields_of(name: str) -> dict[str, str]:
    """Return what a field selector on namespaces compares."""
    return {NAME: name, "status.phase": "Active"}


def cells(name: str, *, created: datetime, now: datetime) -> Sequence[Cell]:
    """Return the row of a project."""
    return [name, "Active", age(now - created)]
