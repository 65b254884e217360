"""What a caller may ask about itself, stand-alone: who am I, may I, and what may I (LW-023).

`kubectl auth whoami`, `auth can-i` and `auth can-i --list` ask these; none of them writes anything.
"""

from typing import Any

import orjson

from nodus_api.apiserver import paths
from nodus_api.apiserver.authorization import Authorizer
from nodus_api.apiserver.identity import User
from nodus_api.attempts.resource import ATTEMPTS
from nodus_api.metav1.discovery import APIResource
from nodus_api.metav1.errors import GroupResource
from nodus_api.metav1.namespaces import NAMESPACES

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
_VERBS = ("get", "list", "watch")


def _review(group: str, kind: str) -> APIResource:
    return APIResource(
        group=group,
        version="v1",
        name=f"{kind.lower()}s",
        singular=kind.lower(),
        kind=kind,
        namespaced=False,
        verbs=("create",),
        stored=False,
    )


API_RESOURCES = (
    _review(AUTHENTICATION, "SelfSubjectReview"),
    _review(AUTHORIZATION, "SelfSubjectAccessReview"),
    _review(AUTHORIZATION, "SelfSubjectRulesReview"),
)
"""What discovery tells of them."""

REVIEWS = frozenset(GroupResource(group=one.group, resource=one.name) for one in API_RESOURCES)
"""Each can be created by every user, and nothing else can be done with it."""


def user_answer(user: User) -> bytes:
    """Return the SelfSubjectReview of a user."""
    info = {"username": user.name, "groups": list(user.groups)}
    return _encoded("SelfSubjectReview", AUTHENTICATION, {}, {"userInfo": info})


def rules_answer(authorizer: Authorizer, user: User, namespace: str) -> bytes:
    """Return the SelfSubjectRulesReview of a user in a namespace, complete."""
    status = {
        "resourceRules": _resource_rules(authorizer, user, namespace),
        "nonResourceRules": [
            {"verbs": ["get"], "nonResourceURLs": sorted(_readable_paths(authorizer, user))}
        ],
        "incomplete": False,
    }
    return _encoded("SelfSubjectRulesReview", AUTHORIZATION, {"namespace": namespace}, status)


def _resource_rules(authorizer: Authorizer, user: User, namespace: str) -> list[dict[str, Any]]:
    rules = []

    def add(resource: GroupResource, verbs: list[str], *names: str) -> None:
        if verbs:
            rule = {"verbs": verbs, "apiGroups": [resource.group], "resources": [resource.resource]}
            rules.append(rule | ({"resourceNames": list(names)} if names else {}))

    def allowed(resource: GroupResource, where: str, *verbs: str) -> list[str]:
        return [v for v in verbs if authorizer.allows_resource(user, v, resource, where)]

    add(ATTEMPTS, allowed(ATTEMPTS, namespace, *_VERBS))
    of_all = allowed(NAMESPACES, "", "list", "watch")
    if user.admin:
        add(NAMESPACES, ["get", *of_all])
    else:
        add(NAMESPACES, of_all)
        add(NAMESPACES, allowed(NAMESPACES, namespace, "get"), namespace)
    for one in API_RESOURCES:
        add(GroupResource(group=one.group, resource=one.name), list(one.verbs))
    return rules


def _readable_paths(authorizer: Authorizer, user: User) -> list[str]:
    return [path for path in paths.told() if authorizer.allows_path(user, path)]


def _encoded(kind: str, group: str, spec: dict[str, Any], status: dict[str, Any]) -> bytes:
    head = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}}
    body = head | ({"spec": spec} if spec else {}) | {"status": status}
    return orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)
