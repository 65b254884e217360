"""The OpenAPI 3.0 document of a group version, and the Swagger 2.0 one (LW-230 to LW-241).

kubectl and the aggregator read these dialects and no newer one: no unions with null, no
titles, references inside `allOf` with a default, Kubernetes' own extensions. pydantic's
generator is turned into it here; paths are written out, since there are few.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from inspect import cleandoc
from typing import Any

import orjson
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from nodus_api.metav1.discovery import APIResource, Document, digest_of
from nodus_api.metav1.fields import NAME, NAMESPACE
from nodus_api.metav1.negotiation import JSON
from nodus_api.metav1.objects import META_V1, NAMED_SCHEMA, WireObject
from nodus_api.metav1.openapi_paths import Dialect, operations, parameters
from nodus_api.metav1.status import MetaStatus, Status, WatchEvent

_RUNTIME = "io.k8s.apimachinery.pkg.runtime"
_FIXED: dict[str, dict[str, Any]] = {
    f"{META_V1}.Time": {
        "type": "string",
        "format": "date-time",
        "description": "Time is a moment in UTC and whole seconds, written as RFC 3339.",
    },
    f"{META_V1}.FieldsV1": {
        "type": "object",
        "description": "FieldsV1 is a set of fields, written as a tree of their names.",
    },
    f"{_RUNTIME}.RawExtension": {
        "type": "object",
        "description": "RawExtension is any object; its kind and apiVersion say which.",
    },
}
_OWN_META = "dev.nodus.meta.v1"
"""Where the shared schemas stand in the Swagger document, which others merge (LW-234)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedResource:
    """What a document is made from: the resource, its types, the fields to select by.

    The examples stand in the descriptions of the two selectors.
    """

    resource: APIResource
    model: type[WireObject]
    list_model: type[WireObject]
    selectable: Sequence[str]
    title: str
    description: str
    field_example: str
    label_example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAPIDocument:
    """A published document: the bytes that are served, and their digest (LW-231)."""

    body: bytes

    @property
    def digest(self) -> str:
        """Upper-case hex SHA-512 of the body, equal on all replicas of a release."""
        return digest_of(self.body)

    def to_document(self) -> Document:
        """Return the answer with its tag (LW-232)."""
        return Document(body=self.body, etag=f'"{self.digest}"')

    def committed(self) -> bytes:
        """Return the form that is kept under version control: indented and sorted."""
        options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(orjson.loads(self.body), option=options)


def document_v3(documented: DocumentedResource) -> OpenAPIDocument:
    """Return the OpenAPI 3.0.0 document of one group version (LW-232, LW-234 to LW-241)."""
    dialect = Dialect(reference="#/components/schemas/", swagger=False)
    return _encoded(
        {
            "openapi": "3.0.0",
            "info": _info(documented),
            "paths": _paths(documented, dialect),
            "components": {
                "schemas": _schemas(documented, dialect),
                "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"BearerToken": []}],
        }
    )


def document_v2(documented: DocumentedResource) -> OpenAPIDocument:
    """Return the Swagger 2.0 document, which an aggregator merges with others (LW-233)."""
    dialect = Dialect(reference="#/definitions/", swagger=True)
    document = {
        "swagger": "2.0",
        "info": _info(documented),
        "paths": _paths(documented, dialect),
        "definitions": _schemas(documented, dialect),
    }
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return OpenAPIDocument(body=text.replace(META_V1.encode(), _OWN_META.encode()) + b"\n")


def index_v3(documents: dict[str, OpenAPIDocument]) -> Document:
    """Return `/openapi/v3`: where each document is, by `apis/nodus.dev/v1` or `api/v1` (LW-230)."""
    paths = {
        path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={document.digest}"}
        for path, document in documents.items()
    }
    body = orjson.dumps({"paths": paths}, option=orjson.OPT_APPEND_NEWLINE)
    return Document(body=body, etag=f'"{digest_of(body)}"')


def cache_headers(document: OpenAPIDocument, *, asked: str | None, now: datetime) -> dict[str, str]:
    """Return the headers of a group version's document (LW-232).

    Asked for by its own hash it may be kept for a year; by another hash it is the current
    document all the same, not to be kept.
    """
    headers = {"Content-Type": JSON, "ETag": f'"{document.digest}"', "Vary": "Accept"}
    if asked == document.digest:
        year = now + timedelta(days=365)
        return headers | {
            "Cache-Control": "public, immutable",
            "Expires": format_datetime(year, usegmt=True),
        }
    return headers | {"Cache-Control": "no-cache, private"}


class KubernetesSchema(GenerateJsonSchema):
    """pydantic's generator in the dialect that kubectl reads (LW-235 to LW-238)."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the type alone: what may be unset is left out, never null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the type alone: a default of ours is no default of the API's."""
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the object with its description in running text and its kind mark."""
        found = super().model_schema(schema)
        found.pop("title", None)
        model = schema["cls"]
        found["description"] = _running(cleandoc(model.__doc__ or ""))
        if model.group_version_kind is not None:
            group, version, kind = model.group_version_kind
            found["x-kubernetes-group-version-kind"] = [
                {"group": group, "version": version, "kind": kind}
            ]
        return found

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 -- pydantic calls it by name
        """No titles: the property's name is enough."""
        return False


def _info(documented: DocumentedResource) -> dict[str, Any]:
    return {
        "title": documented.title,
        "version": documented.resource.version,
        "description": documented.description,
    }


def _schemas(documented: DocumentedResource, dialect: Dialect) -> dict[str, Any]:
    """Return every schema by its full name, its references in the form of the dialect."""
    models = (documented.list_model, Status, MetaStatus, WatchEvent)
    _, generated = models_json_schema(
        [(model, "validation") for model in models], schema_generator=KubernetesSchema
    )
    names = {model.__name__: model.schema_name for model in _all_models(WireObject)}
    found = {names[name]: schema for name, schema in generated["$defs"].items()} | _FIXED
    main = found[documented.model.schema_name]
    main["x-kubernetes-selectable-fields"] = [{"fieldPath": f} for f in documented.selectable]
    main["description"] += f"\n\n{_selecting(documented)}"
    return {name: _referring(schema, names, dialect) for name, schema in found.items()}


def _selecting(documented: DocumentedResource) -> str:
    """Tell what a field selector may name, since kubectl shows no `fix` of a refusal (LW-098)."""
    of_metadata = (NAME, NAMESPACE) if documented.resource.namespaced else (NAME,)
    return f"Field selectors may name {', '.join((*of_metadata, *documented.selectable))}."


def _referring(schema: Any, names: dict[str, str], dialect: Dialect) -> Any:
    """Return a schema with its references renamed and wrapped (LW-237)."""
    if isinstance(schema, list):
        return [_referring(item, names, dialect) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get(NAMED_SCHEMA) or names.get(schema.get("$ref", "").removeprefix("#/$defs/"))
    if name is None:
        return {key: _referring(value, names, dialect) for key, value in schema.items()}
    target = {"$ref": f"{dialect.reference}{name}"}
    rest = {key: value for key, value in schema.items() if key not in ("$ref", NAMED_SCHEMA)}
    if dialect.swagger:
        return rest | target
    if _FIXED.get(name, {}).get("type") != "string":  # {} is no default for a text
        rest["default"] = {}
    return rest | {"allOf": [target]}


def _paths(documented: DocumentedResource, dialect: Dialect) -> dict[str, Any]:
    found = operations(
        documented.resource,
        model=documented.model.schema_name,
        list_model=documented.list_model.schema_name,
        status_model=Status.schema_name,
        selectable=documented.selectable,
        examples=(documented.field_example, documented.label_example),
        dialect=dialect,
    )
    kind = documented.resource.kind
    return {
        path: {"parameters": parameters(path, kind, dialect)} | methods
        for path, methods in found.items()
    }


def _all_models(base: type[WireObject]) -> Iterator[type[WireObject]]:
    for model in base.__subclasses__():
        yield model
        yield from _all_models(model)


def _encoded(document: dict[str, Any]) -> OpenAPIDocument:
    options = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return OpenAPIDocument(body=orjson.dumps(document, option=options))


def _running(text: str) -> str:
    """Return paragraphs without the line breaks of the source."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
