"""Which groups, versions and resources there are; static, so never unavailable (LW-034)."""

import platform

from fastapi import APIRouter

from nodus_api.apiserver import self_reviews
from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.apiserver.dependencies import AnswerResponse, ChainRequest
from nodus_api.apiserver.reads import wants_indent
from nodus_api.apiserver.request import Request
from nodus_api.attempts import resource
from nodus_api.metav1 import discovery, namespaces
from nodus_api.metav1.discovery import Document
from nodus_api.metav1.negotiation import Form, negotiate_discovery, negotiate_plain
from nodus_api.metav1.partial import indented


def discovery_routes(version: str, *, standalone: bool) -> APIRouter:
    """Return the routes of discovery and of `/version`.

    Behind a cluster kube-apiserver has the core group and the reviews (LW-016, LW-023).
    """
    router = APIRouter()
    own = (namespaces.API_RESOURCE, *self_reviews.API_RESOURCES) if standalone else ()
    resources = (resource.API_RESOURCE, *own)
    plain = {
        "/api": discovery.api_versions(),
        "/api/v1": discovery.resource_list("v1", resources),
        "/apis": discovery.group_list(resources),
        f"/apis/{resource.GROUP}": discovery.group(resource.GROUP, resources),
        f"/apis/{resource.GROUP_VERSION}": discovery.resource_list(
            resource.GROUP_VERSION, resources
        ),
        **_review_groups(),
        "/version": discovery.version_info(
            version,
            commit="",
            build_date="1970-01-01T00:00:00Z",
            runtime=f"python{platform.python_version()}",
            platform=f"{platform.system().lower()}/{platform.machine()}",
        ),
    }
    aggregated = {
        "/api": discovery.aggregated(resources, core=True),
        "/apis": discovery.aggregated(resources),
    }

    @router.get("/api", name="coreVersions")
    @router.get("/apis", name="groups")
    async def roots(request: ChainRequest) -> AnswerResponse:
        form = negotiate_discovery(request.header(b"accept")).form
        found = (aggregated if form is Form.DISCOVERY else plain)[request.info.path]
        return AnswerResponse(document_answer(request, found), request)

    @router.get("/api/v1", name="coreResources")
    @router.get(f"/apis/{resource.GROUP}", name="group")
    @router.get(f"/apis/{resource.GROUP_VERSION}", name="resources")
    @router.get("/apis/{group}", name="reviewGroup")
    @router.get("/apis/{group}/v1", name="reviewResources")
    @router.get("/version", name="version")
    async def documents(request: ChainRequest) -> AnswerResponse:
        negotiate_plain(request.header(b"accept"))
        return AnswerResponse(document_answer(request, plain[request.info.path]), request)

    return router


def _review_groups() -> dict[str, Document]:
    resources = self_reviews.API_RESOURCES
    found = {}
    for group in dict.fromkeys(one.group for one in resources):
        found[f"/apis/{group}"] = discovery.group(group, resources)
        found[f"/apis/{group}/v1"] = discovery.resource_list(f"{group}/v1", resources)
    return found


def document_answer(request: Request, document: Document, *, indents: bool = True) -> BodyAnswer:
    """Return a finished document, or 304 to a client that has it (LW-037).

    Its tag is that of its content, whether it is indented for people or not (LW-019).
    """
    if document.unchanged(request.header(b"if-none-match")):
        headers = {name: v for name, v in document.headers.items() if name != "Content-Type"}
        return BodyAnswer(status=304, headers=headers)
    body = indented(document.body) if indents and wants_indent(request) else document.body
    return BodyAnswer.of(body, headers=document.headers)
