"""The Namespace as `kubectl explain` shows it (LW-016, LW-234); published stand-alone only."""

from pydantic import Field

from nodus_api.metav1.namespaces import KIND, LIST_KIND
from nodus_api.metav1.objects import ListMeta, ObjectMeta, WireObject

_CORE_V1 = "io.k8s.api.core.v1"


class NamespaceStatus(WireObject):
    """NamespaceStatus says whether a project is there."""

    schema_name = f"{_CORE_V1}.NamespaceStatus"

    phase: str | None = Field(None, description="Always Active.")


class Namespace(WireObject):
    """Namespace is a project: the Attempts of its workloads are in it.

    Read-only. Projects are made with `nodus project create NAME`.
    """

    schema_name = f"{_CORE_V1}.Namespace"
    group_version_kind = ("", "v1", KIND)

    api_version: str | None = Field(
        None, alias="apiVersion", description="The version of this form, v1."
    )
    kind: str | None = Field(None, description=f"The kind of this object, {KIND}.")
    metadata: ObjectMeta | None = Field(
        None,
        description="The project's name, uid, time and label. Its resourceVersion is a position "
        "in the order of changes of projects and members, not in that of Attempts.",
    )
    status: NamespaceStatus | None = Field(None, description="Whether the project is there.")


class NamespaceList(WireObject):
    """NamespaceList holds the projects that the caller may see."""

    schema_name = f"{_CORE_V1}.NamespaceList"
    group_version_kind = ("", "v1", LIST_KIND)

    api_version: str | None = Field(
        None, alias="apiVersion", description="The version of this form, v1."
    )
    kind: str | None = Field(None, description=f"The kind of this object, {LIST_KIND}.")
    metadata: ListMeta | None = Field(
        None, description="The position that the list shows, and where it goes on."
    )
    items: tuple[Namespace, ...] = Field(description="The projects, by name.")
