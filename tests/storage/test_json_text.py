"""The JSON that rows travel in."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from asyncpg.pgproto import pgproto
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage.json_text import json_text

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
UID = UUID(int=7)
VALUES = {
    "moment": (MOMENT, "2026-01-02T03:04:05.000600+00:00"),
    "amount": (Decimal("0.000001"), "0.000001"),
    "id": (UID, str(UID)),
    "id of the driver": (pgproto.UUID(UID.bytes), str(UID)),
    "bytes": (b"\x00\xff", "\\x00ff"),
    "member": (OwnerKind.JOB, "Job"),
    "nothing": (None, None),
    "text": ("ü\u2028", "ü\u2028"),
    "number": (0.1, 0.1),
    "infinity": (inf, None),
    "no number": (nan, None),
    "pair": (("a", Decimal("1.50")), ["a", "1.50"]),
    "named": (MappingProxyType({OwnerKind.JOB: UID}), {"Job": str(UID)}),
}
BEYOND = 2**70
"""What orjson refuses."""

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize("beside", [0, BEYOND])
@pytest.mark.parametrize("name", VALUES)
def test_each_kind_of_value_has_its_form(name: str, beside: int) -> None:
    value, meant = VALUES[name]
    rows: Mapping[str, Any] = {"rows": [{"value": value, "beside": beside}]}

    assert json.loads(json_text(rows)) == {"rows": [{"value": meant, "beside": beside}]}


@given(plain_values)
def test_what_json_has_comes_back(value: Any) -> None:
    assert json.loads(json_text(value)) == value


@pytest.mark.parametrize("beside", [0, BEYOND])
def test_what_has_no_form_is_refused(beside: int) -> None:
    with pytest.raises(TypeError, match="has no form in JSON"):
        json_text([object(), beside])


def test_ids_as_the_driver_reads_them_go_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("nodus_api.storage.json_text.json")

    assert json_text([pgproto.UUID(UID.bytes)]) == f'["{UID}"]'
