"""The Attempt resource: its names, verbs and place in the API (LW-030 to LW-033)."""

import shlex

from nodus_api.metav1.discovery import APIResource
from nodus_api.metav1.errors import GroupResource, MethodNotAllowed, NotFound
from nodus_api.metav1.golang import quote

GROUP = "nodus.dev"
VERSION = "v1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
KIND = "Attempt"
LIST_KIND = "AttemptList"
RESOURCE = "attempts"
SINGULAR = "attempt"
SHORT_NAMES = ("att",)
CATEGORIES = ("nodus",)
VERBS = ("get", "list", "watch")
"""No write verb, or the garbage collector would take the resource in (LW-033)."""

ATTEMPTS = GroupResource(group=GROUP, resource=RESOURCE)
"""What errors about attempts name."""

API_RESOURCE = APIResource(
    group=GROUP,
    version=VERSION,
    name=RESOURCE,
    singular=SINGULAR,
    kind=KIND,
    namespaced=True,
    verbs=VERBS,
    short_names=SHORT_NAMES,
    categories=CATEGORIES,
)
"""What discovery tells of attempts."""

_INSTEAD = {
    "create": "Submit a workload, whose Attempts follow: `nodus submit -f FILE{project}`.",
    "update": "Change the owner, not the Attempt: `nodus submit -f FILE{project}` or "
    "`nodus scale OWNER N{project}`.",
    "patch": "Change the owner, not the Attempt: `nodus submit -f FILE{project}` or "
    "`nodus scale OWNER N{project}`.",
    "delete": "Stop the owner instead: `nodus stop OWNER{project}`.",
    "deletecollection": "Stop each owner instead: `nodus stop OWNER{project}`.",
}


def read_only(verb: str, namespace: str = "") -> MethodNotAllowed:
    """Return the answer to a write on attempts, with the command that does it (LW-010, LW-202)."""
    project = f" -n {shlex.quote(namespace)}" if namespace else ""
    return MethodNotAllowed(verb, ATTEMPTS, fix=_INSTEAD.get(verb, "").format(project=project))


def no_subresource(name: str, subresource: str, namespace: str) -> NotFound:
    """Return the answer to a path below an Attempt: there is none, and what to read (LW-011)."""
    whole = f"kubectl get {SINGULAR} {shlex.quote(name)} -n {shlex.quote(namespace)} -o yaml"
    return NotFound.object(
        ATTEMPTS,
        name,
        fix=f"Attempts have no sub-resource {quote(subresource)}: read the whole, with its "
        f"status, by `{whole}`.",
    )


def no_project(name: str, namespace: str) -> NotFound:
    """Return the answer for a name in a project that does not exist (LW-003, LW-202).

    For those who may read every project: others are told no more than that it is closed to them.
    """
    return NotFound.object(
        ATTEMPTS,
        name,
        fix=f"There is no project {quote(namespace)}: see which there are with "
        "`nodus project list` or `kubectl get namespaces`.",
    )
