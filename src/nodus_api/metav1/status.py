"""The error body: a metav1 Status with `docs`, `fix` and `requestId` (LW-180 to LW-182).

Docstrings and descriptions are published in the OpenAPI documents.
"""

from typing import Annotated, Any

import orjson
from pydantic import Field, WithJsonSchema

from nodus_api.metav1.objects import META_V1, NAMED_SCHEMA, Int32, ListMeta, WireObject

RawExtension = Annotated[
    dict[str, Any], WithJsonSchema({NAMED_SCHEMA: "io.k8s.apimachinery.pkg.runtime.RawExtension"})
]


class StatusCause(WireObject):
    """StatusCause is one of the things that were wrong with a request."""

    schema_name = f"{META_V1}.StatusCause"

    reason: str | None = Field(None, description="What was wrong, as a code.")
    message: str | None = Field(None, description="What was wrong, for people to read.")
    field: str | None = Field(
        None, description="The field or the parameter that was wrong, for example limit."
    )


class StatusDetails(WireObject):
    """StatusDetails says what an error is about; which fields it has depends on the reason."""

    schema_name = f"{META_V1}.StatusDetails"

    name: str | None = Field(None, description="The name of the object that the error is about.")
    group: str | None = Field(None, description="The API group of what the error is about.")
    kind: str | None = Field(
        None, description="The resource that the error is about, in lower-case plural."
    )
    uid: str | None = Field(None, description="The uid of the object that the error is about.")
    causes: tuple[StatusCause, ...] | None = Field(
        None,
        description="Everything that was wrong, if more can be said than the message does.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    retry_after_seconds: Int32 | None = Field(
        None,
        alias="retryAfterSeconds",
        description="After how many seconds the request may be repeated unchanged.",
    )


class MetaStatus(WireObject):
    """Status is what a Kubernetes API answers with where it has no other object."""

    schema_name = f"{META_V1}.Status"

    api_version: str | None = Field(
        None, alias="apiVersion", description="The version of the schema, v1."
    )
    code: Int32 | None = Field(None, description="The HTTP status code of the answer.")
    details: StatusDetails | None = Field(
        None, description="What the answer is about; its fields depend on the reason."
    )
    kind: str | None = Field(None, description="Always Status.")
    message: str | None = Field(None, description="What happened, for people to read.")
    metadata: ListMeta | None = Field(None, description="Standard list metadata.")
    reason: str | None = Field(None, description="What happened, as a code for programs.")
    status: str | None = Field(None, description="Success or Failure.")


class WatchEvent(WireObject):
    """WatchEvent is one line of a watch: what happened to one object."""

    schema_name = f"{META_V1}.WatchEvent"

    object: RawExtension = Field(
        description="The object after the change, or before it when it was deleted; a Status "
        "after an error."
    )
    type: str = Field(description="ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.")


class Status(WireObject):
    """Status is the body of every error: a metav1 Status, so that Kubernetes clients understand
    it, and three fields of our own that those clients leave alone.
    """

    schema_name = "dev.nodus.v1.Status"

    kind: str = Field("Status", description="Always Status.")
    api_version: str = Field("v1", alias="apiVersion", description="The version of the schema, v1.")
    metadata: ListMeta = Field(
        default_factory=ListMeta,
        description="Empty, but for an expired continue token, where it holds a fresh one.",
    )
    status: str = Field(
        "Failure", description="Always Failure; a success is answered by an object."
    )
    message: str = Field(description="What went wrong, for people to read.")
    reason: str = Field(
        description="The registered code of what went wrong, for programs to decide by; docs "
        "explains it."
    )
    details: StatusDetails | None = Field(
        None, description="What the error is about; its fields depend on the reason."
    )
    code: Int32 = Field(description="The HTTP status code of the answer.")
    docs: str = Field(description="The URL of the page about this code.")
    fix: str = Field(
        description="What to do next, for example a command to run or a field to change."
    )
    request_id: str = Field(
        alias="requestId",
        description="The request's id in the server's logs; name it when you ask for help.",
    )

    def encode(self) -> bytes:
        """Return the body, compact, with one newline at its end (LW-019)."""
        return orjson.dumps(self.to_wire(), option=orjson.OPT_APPEND_NEWLINE)
