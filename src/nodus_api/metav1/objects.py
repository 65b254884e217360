"""The shapes that every resource shares: ObjectMeta, ListMeta and their parts.

Descriptions become the OpenAPI document's. Fields that are unset are left out,
never null; a set zero, false or empty text is written (LW-219).
"""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

META_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1"


class WireObject(BaseModel):
    """A frozen JSON object; Python names inside, written-out aliases on the wire.

    `schema_name` is the object's full name in the OpenAPI documents.
    """

    model_config = ConfigDict(frozen=True, validate_by_name=True, validate_by_alias=True)

    schema_name: ClassVar[str]
    group_version_kind: ClassVar[tuple[str, str, str] | None] = None

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object, without the fields that are unset."""
        return self.model_dump(by_alias=True, exclude_none=True)


Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time as LW-212 writes it, made by `times.format_time`."""

Int64 = Annotated[int, WithJsonSchema({"type": "integer", "format": "int64"})]
Int32 = Annotated[int, WithJsonSchema({"type": "integer", "format": "int32"})]


class OwnerReference(WireObject):
    """OwnerReference contains enough information to let you identify an owning object."""

    schema_name = f"{META_V1}.OwnerReference"

    api_version: str = Field(alias="apiVersion", description="API version of the referent.")
    kind: str = Field(description="Kind of the referent.")
    name: str = Field(description="Name of the referent.")
    uid: str = Field(description="UID of the referent.")
    controller: bool | None = Field(None, description="If true, this is the managing controller.")
    block_owner_deletion: bool | None = Field(
        None,
        alias="blockOwnerDeletion",
        description="If true, the owner stays until this reference is removed.",
    )


class ObjectMeta(WireObject):
    """The part of the metadata that this server sends (LW-210 to LW-217).

    `resourceVersion` comes first: a document's fixed head ends with it.
    """

    schema_name = f"{META_V1}.ObjectMeta"

    resource_version: str = Field("", alias="resourceVersion")
    name: str
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    creation_timestamp: Time | None = Field(None, alias="creationTimestamp")
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = Field(None, alias="ownerReferences")


class ShardInfo(WireObject):
    """The selector a sharded list was answered by (LW-166)."""

    schema_name = f"{META_V1}.ShardInfo"

    selector: str


class ListMeta(WireObject):
    """A list's own metadata (LW-101, LW-108, LW-111, LW-166)."""

    schema_name = f"{META_V1}.ListMeta"

    resource_version: str | None = Field(None, alias="resourceVersion")
    continue_: str | None = Field(None, alias="continue")
    remaining_item_count: int | None = Field(None, alias="remainingItemCount")
    shard_info: ShardInfo | None = Field(None, alias="shardInfo")
