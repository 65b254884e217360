"""The OpenAPI document of the core group, for `kubectl explain namespaces` (LW-016, LW-230)."""

from functools import cache

from nodus_api.metav1.core_types import Namespace, NamespaceList
from nodus_api.metav1.namespaces import API_RESOURCE, SELECTABLE
from nodus_api.metav1.openapi import DocumentedResource, OpenAPIDocument, document_v3


@cache
def core_openapi_v3() -> OpenAPIDocument:
    """Return the OpenAPI 3.0.0 document of `v1`, at `/openapi/v3/api/v1`, stand-alone only."""
    return document_v3(
        DocumentedResource(
            resource=API_RESOURCE,
            model=Namespace,
            list_model=NamespaceList,
            selectable=SELECTABLE,
            title="Nodus API: projects",
            description="Projects, served as Kubernetes namespaces.",
            field_example="metadata.name=team-a",
            label_example="kubernetes.io/metadata.name=team-a",
        )
    )
