"""Both documents are what OpenAPI 3.0 and Swagger 2.0 say, by a validator that is not ours."""

import json
from pathlib import Path
from typing import Any

import pytest

DOCUMENTS = Path(__file__).parent.parent.parent / "openapi"


def without_reference_defaults(found: Any) -> Any:
    """Leave out `default: {}` beside `allOf`: Kubernetes' own form of a described reference.

    kubectl explain needs it (LW-237), and it is no value that anybody would send; the validator
    would compare it with what the referred type requires.
    """
    if isinstance(found, list):
        return [without_reference_defaults(item) for item in found]
    if not isinstance(found, dict):
        return found
    return {
        key: without_reference_defaults(value)
        for key, value in found.items()
        if not (key == "default" and value == {} and "allOf" in found)
    }


@pytest.mark.parametrize(
    ("name", "validator"),
    [
        ("v3", "OpenAPIV30SpecValidator"),
        ("v3-core", "OpenAPIV30SpecValidator"),
        ("v2", "OpenAPIV2SpecValidator"),
    ],
)
def test_the_documents_are_valid(name: str, validator: str) -> None:  # LW-234, LW-233
    independent = pytest.importorskip(
        "openapi_spec_validator",
        reason="openapi-spec-validator is not installed: see the dev extra",
    )
    document = without_reference_defaults(json.loads((DOCUMENTS / f"{name}.json").read_text()))

    errors = getattr(independent, validator)(document).iter_errors()

    assert [f"{list(error.absolute_path)}: {error.message}" for error in errors] == []
