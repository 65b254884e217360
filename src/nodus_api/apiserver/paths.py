"""Which paths there are besides the resources, and who may read them (AS-047, AS-073)."""

_AUTHENTICATION = "/apis/authentication.k8s.io"
_AUTHORIZATION = "/apis/authorization.k8s.io"
WHO_AM_I = f"{_AUTHENTICATION}/v1/selfsubjectreviews"
REVIEW = f"{_AUTHORIZATION}/v1/selfsubjectaccessreviews"
RULES_REVIEW = f"{_AUTHORIZATION}/v1/selfsubjectrulesreviews"
_REVIEWS = frozenset({WHO_AM_I, REVIEW, RULES_REVIEW})
METRICS = "/metrics"
DOCS = "/docs"
ERROR_DOCS = "/docs/errors"
HEALTH = ("/livez", "/readyz", "/healthz")
VERSION = "/version"

_DISCOVERY = frozenset(
    {
        "/apis",
        "/apis/nodus.dev",
        "/apis/nodus.dev/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/apis/nodus.dev/v1",
    }
)
_REVIEW_GROUPS = (
    _AUTHENTICATION, f"{_AUTHENTICATION}/v1", _AUTHORIZATION, f"{_AUTHORIZATION}/v1",
)  # fmt: skip
_STANDALONE = frozenset({"/api", "/api/v1", "/openapi/v3/api/v1", *_REVIEW_GROUPS, *_REVIEWS})


def exists(path: str, *, standalone: bool) -> bool:
    """Return whether this server has a path that is no resource (LW-012)."""
    if path in _STANDALONE:
        return standalone
    return (
        path in _DISCOVERY
        or path in (VERSION, METRICS, DOCS, ERROR_DOCS, *HEALTH)
        or _below_health(path)
        or _is_error_page(path)
    )


def open_to_everybody(path: str) -> bool:
    """Return whether a path needs no credential (AS-047)."""
    return path in (VERSION, DOCS, ERROR_DOCS, *HEALTH) or _is_error_page(path)


def static(path: str) -> bool:
    """Return whether a path holds the same for every user, whatever the database (LW-034)."""
    return path in _DISCOVERY


def open_to_users(path: str) -> bool:
    """Return whether any authenticated user may read a path (AS-073)."""
    return path in _DISCOVERY or path in _STANDALONE or open_to_everybody(path)


def methods(path: str) -> tuple[str, ...]:
    """Return the methods that a path has."""
    return ("POST",) if path in _REVIEWS else ("GET", "HEAD")


def told() -> frozenset[str]:
    """Return the paths that can be read stand-alone, those below one as `PATH/*`."""
    below = (f"{path}/*" for path in (ERROR_DOCS, *HEALTH))
    single = (VERSION, METRICS, DOCS, ERROR_DOCS, *HEALTH)
    return _DISCOVERY | (_STANDALONE - _REVIEWS) | {*single, *below}


def _below_health(path: str) -> bool:
    endpoint, _, check = path[1:].partition("/")
    return f"/{endpoint}" in HEALTH and bool(check) and "/" not in check


def _is_error_page(path: str) -> bool:
    code = path.removeprefix(f"{ERROR_DOCS}/")
    return code != path and "/" not in code
