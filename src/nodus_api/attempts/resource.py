"""The Attempt resource: its names, verbs and place in the API (LW-030 to LW-033)."""

from nodus_api.metav1.discovery import APIResource
from nodus_api.metav1.errors import GroupResource

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
