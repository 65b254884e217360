"""The published OpenAPI documents of attempts, made once (LW-230 to LW-241)."""

from functools import cache

from nodus_api.attempts.resource import API_RESOURCE, GROUP_VERSION
from nodus_api.attempts.selectable import FIELDS
from nodus_api.attempts.types import Attempt, AttemptList
from nodus_api.metav1.core_openapi import core_openapi_v3
from nodus_api.metav1.discovery import Document
from nodus_api.metav1.openapi import (
    DocumentedResource,
    OpenAPIDocument,
    document_v2,
    document_v3,
    index_v3,
)

_DOCUMENTED = DocumentedResource(
    resource=API_RESOURCE,
    model=Attempt,
    list_model=AttemptList,
    selectable=FIELDS,
    title="Nodus API",
    description="Where did a container run and why there, what happened to it, how long did each "
    "part take, and what did it cost: Attempts, served as a Kubernetes resource.",
    field_example="status.phase=Running",
    label_example="nodus.dev/job=train",
)


@cache
def openapi_v3() -> OpenAPIDocument:
    """Return the OpenAPI 3.0.0 document of `nodus.dev/v1`, at `/openapi/v3/apis/nodus.dev/v1`."""
    return document_v3(_DOCUMENTED)


@cache
def openapi_v2() -> OpenAPIDocument:
    """Return the Swagger 2.0 document, at `/openapi/v2`."""
    return document_v2(_DOCUMENTED)


@cache
def openapi_index(*, standalone: bool) -> Document:
    """Return the index of the OpenAPI 3 documents, at `/openapi/v3`.

    The core group is there stand-alone only, as its resource is (LW-017).
    """
    core = {"api/v1": core_openapi_v3()} if standalone else {}
    return index_v3(core | {f"apis/{GROUP_VERSION}": openapi_v3()})
