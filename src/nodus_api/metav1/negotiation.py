"""What form of answer an Accept header asks for (LW-050 to LW-056, LW-035, LW-036)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from nodus_api.metav1.errors import NotAcceptable

JSON = "application/json"
"""The content type of objects, errors and watch streams, without a charset (LW-056)."""

AGGREGATED_JSON = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type of aggregated discovery; clients tell the forms apart by it (LW-035)."""


class Form(Enum):
    """The form of an answer."""

    JSON = "JSON"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"
    DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True, kw_only=True)
class Representation:
    """A form, and the version of `meta.k8s.io` that a Table or metadata is given in."""

    form: Form = Form.JSON
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion of a Table or of metadata in this representation."""
        return f"meta.k8s.io/{self.version}"

    def for_list(self, list_kind: str) -> "Representation":
        """Return this, for a list. Raises NotAcceptable for the form of one object (LW-053)."""
        if self.form is Form.PARTIAL:
            raise NotAcceptable(
                f"you requested {self.form.value}, but the requested object is a list "
                f"({list_kind})",
                form=self._metadata(Form.PARTIAL_LIST),
            )
        return self

    def for_object(self, kind: str) -> "Representation":
        """Return this, for one object. Raises NotAcceptable for the form of a list (LW-053)."""
        if self.form is Form.PARTIAL_LIST:
            raise NotAcceptable(
                f"you requested {self.form.value}, but the requested object is not a list ({kind})",
                form=self._metadata(Form.PARTIAL),
            )
        return self

    def for_watch(self) -> "Representation":
        """Return this, for a watch, where both forms of metadata mean one object (LW-053)."""
        if self.form is Form.PARTIAL_LIST:
            return Representation(form=Form.PARTIAL, version=self.version)
        return self

    def _metadata(self, form: Form) -> str:
        """Return the media type of metadata in this version."""
        return f"{JSON};as={form.value};v={self.version};g=meta.k8s.io"


MAX_ACCEPT_BYTES = 8 * 1024
"""So much of an Accept header is read: a header block may be 256 KiB, of 100,000 clauses."""

PLAIN = Representation()

_Transforms = Mapping[tuple[str | None, str | None, str | None], Representation]

_OBJECTS: _Transforms = {
    (form.value, "meta.k8s.io", version): Representation(form=form, version=version)
    for form in (Form.TABLE, Form.PARTIAL, Form.PARTIAL_LIST)
    for version in ("v1", "v1beta1")
}
_DISCOVERY: _Transforms = {
    (Form.DISCOVERY.value, "apidiscovery.k8s.io", "v2"): Representation(form=Form.DISCOVERY)
}
_TYPES = frozenset({JSON, "application/*", "*/*"})
_SERVER_VERSION = "v1"
"""The version of the answers that a clause may name by `sv`, as kube's own resources have it."""


def negotiate(accept: str | None) -> Representation:
    """Return the form for objects, lists and watches.

    Raises NotAcceptable when no clause can be served (LW-055).
    """
    return _choose(accept, _OBJECTS, server_version=_SERVER_VERSION)


def negotiate_discovery(accept: str | None) -> Representation:
    """Return the form for `/api` and `/apis`: plain or aggregated (LW-030, LW-035).

    Raises NotAcceptable when no clause can be served.
    """
    return _choose(accept, _DISCOVERY)


def negotiate_plain(accept: str | None) -> None:
    """Raise NotAcceptable unless plain JSON will do (LW-232, LW-233)."""
    _choose(accept, {})


def prefers_html(accept: str | None) -> bool:
    """Return whether a page of the error docs is to be HTML, not plain text (LW-202)."""
    for kind, _ in _clauses(accept or ""):
        if kind in ("text/html", "application/xhtml+xml"):
            return True
        if kind in ("text/plain", "text/*", "*/*"):
            return False
    return False


def _choose(
    accept: str | None, transforms: _Transforms, *, server_version: str = ""
) -> Representation:
    if not accept or not accept.strip():
        return PLAIN
    for kind, parameters in _clauses(accept):
        if parameters.get("sv", "") not in ("", server_version) or kind not in _TYPES:
            continue
        if found := _representation(parameters, transforms):
            return found
    raise NotAcceptable()


def _representation(
    parameters: Mapping[str, str], transforms: _Transforms
) -> Representation | None:
    """Return what a clause's parameters ask for, None to skip the clause (LW-051)."""
    if parameters.get("stream", "") not in ("", "watch"):
        return None
    wanted = (parameters.get("as"), parameters.get("g"), parameters.get("v"))
    return PLAIN if wanted == (None, None, None) else transforms.get(wanted)


def _clauses(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield media types with their parameters, best first (LW-050)."""
    found = []
    if len(accept) > MAX_ACCEPT_BYTES:
        accept = accept[:MAX_ACCEPT_BYTES].rpartition(",")[0]  # a clause that is cut says another
    for clause in accept.split(","):
        kind, *rest = (part.strip() for part in clause.split(";"))
        kind = "*/*" if kind == "*" else kind
        parameters = {
            key.strip().lower(): value.strip().strip('"')
            for key, _, value in (part.partition("=") for part in rest)
        }
        quality = _quality(parameters.pop("q", "1"))
        if kind and quality > 0:
            found.append((-quality, kind.count("*"), kind.lower(), parameters))
    found.sort(key=lambda clause: clause[:2])  # stable: otherwise as written
    for _, _, kind, parameters in found:
        yield kind, parameters


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0
