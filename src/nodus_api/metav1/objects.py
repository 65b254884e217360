"""The shapes that every resource shares: ObjectMeta, ListMeta and their parts.

Docstrings and descriptions are published in the OpenAPI documents. Fields that are
unset are left out, never null; a set zero, false or empty text is written (LW-219).
What this server never sends stands here too, so that clients find the schema they know
(LW-214, LW-234).
"""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

META_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1"

NAMED_SCHEMA = "x-nodus-schema"
"""Marks a type that the OpenAPI documents show as a reference to a schema of this name."""


class WireObject(BaseModel):
    """A frozen JSON object; Python names inside, written-out aliases on the wire.

    `schema_name` is the object's full name in the OpenAPI documents.
    """

    model_config = ConfigDict(
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,  # most processes use few of them: each is built when it is used first
    )

    schema_name: ClassVar[str]
    group_version_kind: ClassVar[tuple[str, str, str] | None] = None

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object, without the fields that are unset."""
        return self.model_dump(by_alias=True, exclude_none=True)


Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time as LW-212 writes it, made by `times.format_time`."""

MetaTime = Annotated[str, WithJsonSchema({NAMED_SCHEMA: f"{META_V1}.Time"})]
"""The same, where the upstream schema refers to its own Time."""

FieldsV1 = Annotated[dict[str, Any], WithJsonSchema({NAMED_SCHEMA: f"{META_V1}.FieldsV1"})]

Int64 = Annotated[int, WithJsonSchema({"type": "integer", "format": "int64"})]
Int32 = Annotated[int, WithJsonSchema({"type": "integer", "format": "int32"})]


class OwnerReference(WireObject):
    """OwnerReference names the object, in the same namespace, that another one belongs to."""

    schema_name = f"{META_V1}.OwnerReference"

    api_version: str = Field(alias="apiVersion", description="The owner's API version.")
    kind: str = Field(description="The owner's kind.")
    name: str = Field(description="The owner's name.")
    uid: str = Field(description="The owner's uid.")
    controller: bool | None = Field(
        None, description="Whether the owner is the one that manages the object."
    )
    block_owner_deletion: bool | None = Field(
        None,
        alias="blockOwnerDeletion",
        description="Whether the owner stays until this object is gone, when it is deleted in the "
        "foreground.",
    )


class ManagedFieldsEntry(WireObject):
    """ManagedFieldsEntry says which fields of an object one manager has set, in which version."""

    schema_name = f"{META_V1}.ManagedFieldsEntry"

    api_version: str | None = Field(
        None, alias="apiVersion", description="The version of the object that the fields are of."
    )
    fields_type: str | None = Field(
        None, alias="fieldsType", description="The form that the fields are written in, FieldsV1."
    )
    fields_v1: FieldsV1 | None = Field(
        None, alias="fieldsV1", description="The fields, in the form that fieldsType says."
    )
    manager: str | None = Field(None, description="Who set the fields.")
    operation: str | None = Field(None, description="How they were set, by Apply or by Update.")
    subresource: str | None = Field(
        None, description="The subresource that they were set through; empty for the object itself."
    )
    time: MetaTime | None = Field(None, description="When the manager last changed the fields.")


class ObjectMeta(WireObject):
    """ObjectMeta is the metadata that every object has."""

    schema_name = f"{META_V1}.ObjectMeta"

    # resourceVersion is first, because a document's fixed head ends with it (storage.md).
    resource_version: str | None = Field(
        "",
        alias="resourceVersion",
        description="The position of the object's last change in the order of all changes. "
        "Compare two only with each other, and send one back unchanged.",
    )
    name: str | None = Field(
        None, description="The object's name, the only one of its kind in its namespace."
    )
    namespace: str | None = Field(
        None, description="The namespace that the object is in, which is the project."
    )
    uid: str | None = Field(
        None,
        description="The object's own identity, which no other object has at any time or place.",
    )
    generation: Int64 | None = Field(None, description="Counts the changes of the object's spec.")
    creation_timestamp: MetaTime | None = Field(
        None, alias="creationTimestamp", description="When the object was created, in UTC."
    )
    labels: dict[str, str] | None = Field(None, description="Keys and values to select objects by.")
    annotations: dict[str, str] | None = Field(
        None, description="Keys and values for tools and people, which cannot be selected by."
    )
    owner_references: tuple[OwnerReference, ...] | None = Field(
        None,
        alias="ownerReferences",
        description="The objects that this one belongs to; at most one of them manages it.",
        json_schema_extra={
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
    )
    deletion_grace_period_seconds: Int64 | None = Field(
        None,
        alias="deletionGracePeriodSeconds",
        description="How long the object may take to end after its deletion was asked for, in "
        "seconds.",
    )
    deletion_timestamp: MetaTime | None = Field(
        None, alias="deletionTimestamp", description="When the object is to be gone, in UTC."
    )
    finalizers: tuple[str, ...] | None = Field(
        None,
        description="What must be done before a deleted object is removed.",
        json_schema_extra={
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
    )
    generate_name: str | None = Field(
        None, alias="generateName", description="What a name begins with that the server makes up."
    )
    managed_fields: tuple[ManagedFieldsEntry, ...] | None = Field(
        None,
        alias="managedFields",
        description="Who set which fields.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    self_link: str | None = Field(
        None, alias="selfLink", description="Not used any more; the server never sends it."
    )


class ShardInfo(WireObject):
    """ShardInfo says by which shard selector a list was narrowed."""

    schema_name = f"{META_V1}.ShardInfo"

    selector: str = Field(
        description="The selector that the list was answered by, in its one canonical form."
    )


class ListMeta(WireObject):
    """ListMeta is the metadata of a list."""

    schema_name = f"{META_V1}.ListMeta"

    resource_version: str | None = Field(
        None,
        alias="resourceVersion",
        description="The position in the order of all changes that the list shows; a watch from "
        "it misses nothing.",
    )
    continue_: str | None = Field(
        None,
        alias="continue",
        description="Where the list goes on; send it back as the parameter continue. Left out on "
        "the last page.",
    )
    remaining_item_count: Int64 | None = Field(
        None,
        alias="remainingItemCount",
        description="How many items follow after this page; left out when a selector was given.",
    )
    self_link: str | None = Field(
        None, alias="selfLink", description="Not used any more; the server never sends it."
    )
    shard_info: ShardInfo | None = Field(
        None, alias="shardInfo", description="Set when the list was narrowed by a shard selector."
    )
