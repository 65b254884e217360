"""A direct request in another user's name is refused, never served as the caller (AS-025).

Behind the aggregation layer kube-apiserver resolves these headers and takes them away.
"""

import shlex
from collections.abc import Mapping

from nodus_api.apiserver.identity import User
from nodus_api.metav1.errors import Forbidden, GroupResource

PREFIX = b"impersonate-"
_EXTRA = PREFIX + b"extra-"
_RESOURCES = {
    PREFIX + b"user": GroupResource(group="", resource="users"),
    PREFIX + b"group": GroupResource(group="", resource="groups"),
    PREFIX + b"uid": GroupResource(group="authentication.k8s.io", resource="uids"),
}
"""In kube-apiserver's order: the first that is forbidden makes the message."""
_EXTRAS = GroupResource(group="authentication.k8s.io", resource="userextras")
_ACCOUNTS = GroupResource(group="", resource="serviceaccounts")
_ACCOUNT_PREFIX = "system:serviceaccount:"


def refuse_impersonation(user: User, headers: Mapping[bytes, bytes]) -> None:
    """Raise Forbidden if a request asks to be served as somebody else than `user`."""
    if any(name.startswith(PREFIX) for name in headers):
        resource, name, namespace = _asked(headers)
        raise Forbidden.impersonation(
            resource, user=user.name, name=name, namespace=namespace, fix=_fix(resource, name)
        )


def _asked(headers: Mapping[bytes, bytes]) -> tuple[GroupResource, str, str]:
    """Return the resource to impersonate, its name and its namespace."""
    for header, resource in _RESOURCES.items():
        # several of one name are joined by commas, and the first one counts
        if value := headers.get(header, b"").decode("latin-1").partition(",")[0].strip():
            if resource.resource == "users" and value.startswith(_ACCOUNT_PREFIX):
                namespace, _, name = value.removeprefix(_ACCOUNT_PREFIX).partition(":")
                return _ACCOUNTS, name, namespace
            return resource, value, ""
    for header, values in headers.items():
        if header.startswith(_EXTRA):
            return _EXTRAS, values.decode("latin-1").partition(",")[0].strip(), ""
    return _RESOURCES[PREFIX + b"user"], "", ""


def _fix(resource: GroupResource, name: str) -> str:
    user = shlex.quote(name) if resource.resource == "users" and name else "NAME"
    return (
        "Leave the Impersonate headers (kubectl's --as) out, and use that user's own token: "
        f"`nodus token create --user {user}`."
    )
