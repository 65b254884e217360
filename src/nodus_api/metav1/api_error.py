"""What every error can do: become a Status with its registered code (LW-180 to LW-183, LW-202)."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar

from nodus_api.metav1.codes import CODES
from nodus_api.metav1.objects import ListMeta
from nodus_api.metav1.status import Status, StatusDetails


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResource:
    """A resource's plural name and its group; the core group is empty."""

    group: str
    resource: str

    def __str__(self) -> str:
        """Return `attempts.nodus.dev`, or the bare name in the core group."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def details(self, *, name: str | None = None) -> StatusDetails:
        """Return the details that name this resource (LW-182)."""
        return StatusDetails(name=name or None, group=self.group or None, kind=self.resource)


def docs_url(code: str, *, public_url: str = "") -> str:
    """Return where the page about a code is; without a public URL the path alone (LW-202)."""
    return f"{public_url.rstrip('/')}/docs/errors/{code}"


class APIError(Exception):
    """What a request is answered with instead of an object.

    `retry_after` is in seconds and stands in the header and in the details alike (LW-183).
    Without `details` the body has none.
    """

    code: ClassVar[HTTPStatus]
    reason: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        details: StatusDetails | None = None,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix or CODES[self.reason].remedy
        self.http_status = self.code
        self.retry_after = retry_after
        self.details = details
        self.list_meta = ListMeta()
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)
            self.details = (details or StatusDetails()).model_copy(
                update={"retry_after_seconds": retry_after}
            )

    def to_status(self, *, request_id: str, public_url: str = "") -> Status:
        """Return the body for this error, in HTTP answers and ERROR events alike (LW-181)."""
        return Status(
            metadata=self.list_meta,
            message=self.message,
            reason=self.reason,
            details=self.details,
            code=int(self.http_status),
            docs=docs_url(self.reason, public_url=public_url),
            fix=self.fix,
            request_id=request_id,
        )
