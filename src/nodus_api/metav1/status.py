"""The error body: a metav1 Status with `docs`, `fix` and `requestId` (LW-180 to LW-182)."""

import orjson
from pydantic import Field

from nodus_api.metav1.objects import META_V1, Int32, ListMeta, WireObject


class StatusCause(WireObject):
    """One thing that was wrong with a request."""

    schema_name = f"{META_V1}.StatusCause"

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(WireObject):
    """What a Status is about; `kind` holds the resource, in lower-case plural (LW-182)."""

    schema_name = f"{META_V1}.StatusDetails"

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: Int32 | None = Field(None, alias="retryAfterSeconds")


class Status(WireObject):
    """Status is the body of every error: a metav1 Status, so that Kubernetes clients understand
    it, and three fields of our own that those clients leave alone.
    """

    schema_name = "dev.nodus.v1.Status"

    kind: str = Field("Status", description="Always Status.")
    api_version: str = Field("v1", alias="apiVersion", description="Always v1.")
    metadata: ListMeta = Field(
        default_factory=lambda: ListMeta(),
        description="Empty, but for an expired continue token, where it holds a fresh one.",
    )
    status: str = Field("Failure", description="Always Failure; success is answered by an object.")
    message: str = Field(description="What went wrong, for people to read.")
    reason: str = Field(
        description="The registered code of what went wrong, for programs to decide by; docs "
        "explains it."
    )
    details: StatusDetails | None = Field(
        None, description="What the error is about; its fields depend on the reason."
    )
    code: Int32 = Field(description="The HTTP status code of the answer.")
    docs: str = Field(description="Where the page about this code is.")
    fix: str = Field(description="What to do next, such as a command to run or a field to change.")
    request_id: str = Field(
        alias="requestId",
        description="The request's id in the server's logs; name it when you ask for help.",
    )

    def encode(self) -> bytes:
        """Return the body, compact, with one newline at its end (LW-019)."""
        return orjson.dumps(self.to_wire(), option=orjson.OPT_APPEND_NEWLINE)
