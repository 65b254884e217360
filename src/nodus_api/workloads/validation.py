"""A manifest, checked: every document is right, or one sentence says what is wrong (SC-801)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.workloads.documents import ManifestError, read_documents
from nodus_api.workloads.sentences import (
    Path,
    dotted,
    nearest,
    nearest_elsewhere,
    sentence,
    shown,
)
from nodus_api.workloads.types import API_VERSION, SPECS, Metadata

_TOP = ("apiVersion", "kind", "metadata", "spec")
_DEEPEST = 20

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One checked document. `spec` is canonical, every default stated (SC-802)."""

    kind: OwnerKind
    name: str
    project: str
    spec: Mapping[str, Any]

    @property
    def workload_spec(self) -> WorkloadSpec:
        """The spec as the kernel reads it."""
        return WorkloadSpec.from_json(self.kind, self.spec)


def parse_manifests(text: str, *, project: str = "default") -> list[Manifest]:
    """Return the checked documents of a manifest, in their order.

    `project` is where a document without metadata.namespace belongs. Nothing is returned
    unless all documents are right; else ManifestError names the first document and field
    that is not, and what to write instead.
    """
    documents = read_documents(text)
    manifests: list[Manifest] = []
    places: dict[tuple[str, OwnerKind, str], int] = {}
    for number, document in enumerate(documents, start=1):
        checking = _Checking(number=number, several=len(documents) > 1, document=document)
        manifest = checking.manifest(project)
        key = (manifest.project, manifest.kind, manifest.name)
        if key in places:
            raise checking.refusal(
                f"document {places[key]} is the same {manifest.kind} in project "
                f"{manifest.project}: give one of them another name",
                field="metadata.name",
            )
        places[key] = number
        manifests.append(manifest)
    return manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checking:
    """One document on its way: it knows how to call itself in a sentence."""

    number: int
    several: bool
    document: Any

    def manifest(self, project: str) -> Manifest:
        kind = self._kind()
        metadata = self._checked(Metadata, "metadata")
        spec = self._checked(SPECS[kind], "spec")
        canonical = WorkloadSpec.from_json(kind, spec.model_dump(by_alias=True, exclude_none=True))
        return Manifest(
            kind=kind,
            name=metadata.name,
            project=metadata.namespace or project,
            spec=canonical.to_json(),
        )

    def refusal(self, words: str, *, field: str | None = None) -> ManifestError:
        return ManifestError(f"{self._title()}: {words}", document=self.number, field=field)

    def _kind(self) -> OwnerKind:
        """Check what comes before the schema is known: the shape, apiVersion and kind."""
        if not isinstance(self.document, dict):
            raise self.refusal(
                f"must be a mapping with {', '.join(_TOP)}, not {shown(self.document)}"
            )
        self._refuse_odd_text(self.document, ())
        for name in ("apiVersion", "kind"):
            if self.document.get(name) is None:
                example = API_VERSION if name == "apiVersion" else OwnerKind.JOB
                raise self.refusal(f"{name} is missing: write {name}: {example}", field=name)
        version, kind = self.document["apiVersion"], self.document["kind"]
        if version != API_VERSION:
            raise self.refusal(
                f"apiVersion must be {API_VERSION}, not {shown(version)}", field="apiVersion"
            )
        if kind not in list(OwnerKind):
            close = nearest(str(kind), list(OwnerKind))
            hint = f": did you mean {close}?" if close else f": write {_either(list(OwnerKind))}"
            raise self.refusal(f"kind {shown(kind)} is not known{hint}", field="kind")
        for name in self.document:
            if name not in _TOP:
                raise self._unknown_top(str(name), OwnerKind(kind))
        return OwnerKind(kind)

    def _unknown_top(self, name: str, kind: OwnerKind) -> ManifestError:
        close = (
            nearest(name, _TOP)
            or nearest_elsewhere(name, Metadata, ("metadata",))
            or nearest_elsewhere(name, SPECS[kind], ("spec",))
        )
        hint = f"did you mean {close}?" if close else f"write {', '.join(_TOP)} only"
        return self.refusal(f"{name} is not a known field: {hint}", field=name)

    def _checked(self, schema: type[_Model], name: str) -> _Model:
        value = self.document.get(name)
        if value is None:
            raise self.refusal(f"{name} is missing: write it", field=name)
        try:
            return schema.model_validate(value)
        except ValidationError as error:
            # an unknown field first: it is why another one is missing
            found = error.errors(include_url=False)
            telling = min(found, key=lambda one: one["type"] != "extra_forbidden")
            field, words = sentence(telling, schema, (name,))
            raise self.refusal(words, field=field) from None

    def _title(self) -> str:
        """Name the document: by kind and name, by its number where there are several."""
        kind = name = None
        if isinstance(self.document, dict):
            kind, metadata = self.document.get("kind"), self.document.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
        words = " ".join(one[:63] for one in (kind, name) if isinstance(one, str) and one)
        if not self.several:
            return words or "the manifest"
        return f"document {self.number} ({words})" if words else f"document {self.number}"

    def _refuse_odd_text(self, value: Any, path: Path) -> None:
        """Refuse what neither a program nor the database can take: NUL, half a surrogate pair."""
        if len(path) > _DEEPEST:
            raise self.refusal(f"is nested more than {_DEEPEST} deep: write it flat")
        if isinstance(value, str) and ("\0" in value or not _encodable(value)):
            field = dotted(path)
            raise self.refusal(
                f"{field} holds a character that is no text (NUL or half a surrogate pair): "
                "leave it out",
                field=field,
            )
        if isinstance(value, list):
            for place, item in enumerate(value):
                self._refuse_odd_text(item, (*path, place))
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    where = dotted(path) or "the document"
                    raise self.refusal(
                        f"{where} has the key {shown(key)}, which is no string: "
                        f'write "{shown(key)}"'
                    )
                self._refuse_odd_text(key, path)
                self._refuse_odd_text(item, (*path, key))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
