"""What a user may read, in stand-alone mode (AS-056, AS-057, AS-072, AS-073)."""

from nodus_api.apiserver import paths
from nodus_api.apiserver.access_cache import AccessCache
from nodus_api.apiserver.identity import AUTHENTICATED, User
from nodus_api.apiserver.metrics import Metrics
from nodus_api.apiserver.request import RequestInfo, Target
from nodus_api.metav1.errors import Forbidden, GroupResource
from nodus_api.metav1.namespaces import NAMESPACES


class Authorizer:
    """Decides by the access view alone, never by a database call."""

    def __init__(self, access: AccessCache, metrics: Metrics) -> None:
        self._access = access
        self._metrics = metrics

    def authorize(self, user: User, info: RequestInfo) -> None:
        """Raise Forbidden unless the user may do what the request asks."""
        if self.allows(user, info):
            self._metrics.authorization("allowed")
            return
        self._metrics.authorization("denied")
        if info.resource is None:
            raise Forbidden.path(info.path, user=user.name, verb=info.verb)
        raise Forbidden.resource(
            info.resource,
            user=user.name,
            verb=info.verb,
            namespace=info.namespace,
            name=info.name,
        )

    def allows(self, user: User, info: RequestInfo) -> bool:
        """Return whether the user may do what the request asks."""
        if info.resource is None or info.target is Target.PATH:
            return self.allows_path(user, info.path)
        return self.allows_resource(user, info.verb, info.resource, info.namespace)

    def allows_resource(
        self, user: User, verb: str, resource: GroupResource, namespace: str
    ) -> bool:
        """Return whether the user may get, list or watch in a project, or in all with ''."""
        if verb not in ("get", "list", "watch"):
            return False
        view = self._access.view
        if resource == NAMESPACES and not namespace:
            return AUTHENTICATED in user.groups  # narrowed to what the caller may see (LW-016)
        return view is not None and view.may_read(user, namespace or None)

    def allows_path(self, user: User, path: str) -> bool:
        """Return whether the user may read a path that is no resource."""
        if paths.open_to_everybody(path):
            return True
        if AUTHENTICATED not in user.groups:
            return False
        return user.admin or paths.open_to_users(path)
