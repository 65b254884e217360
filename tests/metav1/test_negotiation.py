"""Accept headers: LW-035, LW-036, LW-050 to LW-055, LW-202."""

import pytest

from nodus_api.metav1.errors import NotAcceptable
from nodus_api.metav1.negotiation import (
    Form,
    Representation,
    negotiate,
    negotiate_discovery,
    negotiate_plain,
    prefers_html,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
BETA = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON = Representation()


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, JSON),
        ("", JSON),
        (" ", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/json", JSON),
        ("Application/JSON", JSON),
        ("application/json, */*;q=0.8", JSON),
        ("*", JSON),
        ("application/json;sv=v1", JSON),
        ("application/json;charset=utf-8;pretty=1;foo=bar", JSON),
        ("application/json;stream=watch", JSON),
        ("application/json;stream=", JSON),
        (f"{PROTOBUF},application/json", JSON),  # LW-054, LW C-30
        ("application/json;q=0.9,application/cbor", JSON),
        ("application/json;q=0.1,*/*;q=0.9", JSON),  # LW C-31
        ("application/json;q=nonsense", JSON),
        (TABLE, Representation(form=Form.TABLE)),
        (f"{TABLE},{BETA},application/json", Representation(form=Form.TABLE)),  # LW-052
        (BETA, Representation(form=Form.TABLE, version="v1beta1")),
        ('*/*;as=Table;v="v1";g=meta.k8s.io', Representation(form=Form.TABLE)),
        (f"application/json;as=Table,{PARTIAL}", Representation(form=Form.PARTIAL)),  # LW-051
        (
            f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{PARTIAL_LIST},application/json",
            Representation(form=Form.PARTIAL_LIST),
        ),  # field case A16
        (f"application/json;q=0.5,{TABLE};q=0.7", Representation(form=Form.TABLE)),
        (f"*/*,{TABLE}", Representation(form=Form.TABLE)),  # exact before wildcard
        (f"application/json,{TABLE}", JSON),  # as written
    ],
)
def test_the_best_clause_wins(accept: str | None, wanted: Representation) -> None:  # LW-050, LW-051
    assert negotiate(accept) == wanted


@pytest.mark.parametrize(
    "accept",
    [
        PROTOBUF,  # LW C-29
        "application/cbor",
        "application/yaml",
        "text/html",
        "application/json;as=Table",  # LW C-34
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;v=v1",
        "application/json;stream=other",
        "application/json;sv=v2",
        "application/json;q=0",
        ",;",
        V2,
    ],
)
def test_nothing_acceptable_is_406(accept: str) -> None:  # LW-055
    with pytest.raises(NotAcceptable) as error:
        negotiate(accept)
    assert error.value.message == "only the following media types are accepted: application/json"


@pytest.mark.parametrize(
    ("accept", "aggregated"),
    [
        (V2, True),
        (f"{V2},{V2BETA1},application/json", True),
        (f"{V2BETA1},application/json", False),  # LW-036, LW C-19
        (
            "application/json;profile=nopeer;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
            True,
        ),
        ("application/json", False),
        (None, False),
    ],
)
def test_discovery_has_two_forms(accept: str | None, aggregated: bool) -> None:  # LW-035, LW-036
    assert (negotiate_discovery(accept).form is Form.DISCOVERY) is aggregated


def test_the_removed_discovery_form_alone_is_406() -> None:  # LW-036, LW C-19
    with pytest.raises(NotAcceptable):
        negotiate_discovery(V2BETA1)


def test_discovery_has_no_version_of_its_own() -> None:  # LW-051
    with pytest.raises(NotAcceptable):
        negotiate_discovery("application/json;sv=v1")


def test_plain_json_alone() -> None:  # LW-232, field case A09
    negotiate_plain("application/com.github.proto-openapi.spec.v2@v1.0+protobuf, application/json")
    with pytest.raises(NotAcceptable):
        negotiate_plain("application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    with pytest.raises(NotAcceptable):
        negotiate_plain(TABLE)


def test_metadata_has_a_form_for_lists_and_one_for_objects() -> None:  # LW-053, LW C-35
    one, many = negotiate(PARTIAL), negotiate(PARTIAL_LIST)
    assert one.for_object("Attempt") is one
    assert many.for_list("AttemptList") is many
    assert many.for_watch() == one.for_watch() == one
    with pytest.raises(NotAcceptable) as error:
        one.for_list("AttemptList")
    assert error.value.message == (
        "you requested PartialObjectMetadata, but the requested object is a list (AttemptList)"
    )
    with pytest.raises(NotAcceptable) as error:
        many.for_object("Attempt")
    assert error.value.message == (
        "you requested PartialObjectMetadataList, but the requested object is not a list (Attempt)"
    )


def test_the_version_of_a_table() -> None:  # LW-051
    assert negotiate(TABLE).api_version == "meta.k8s.io/v1"
    assert negotiate(BETA).api_version == "meta.k8s.io/v1beta1"


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (None, False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("text/plain,text/html;q=0.5", False),
        ("application/json", False),
        ("application/json,text/html;q=0.1", True),
    ],
)
def test_who_gets_html(accept: str | None, html: bool) -> None:  # LW-202
    assert prefers_html(accept) is html


def test_only_so_many_clauses_are_read() -> None:  # LW-050, AS-089
    table = "application/json;as=Table;v=v2;g=meta.k8s.io,"
    assert negotiate(table * 100 + "application/json") == Representation()
    with pytest.raises(NotAcceptable):
        negotiate("a/b," * 60_000 + "application/json")
    with pytest.raises(NotAcceptable):  # the clause that is cut would be plain JSON
        negotiate("a/b," * 2_044 + "application/json;as=X;g=meta.k8s.io;v=v1")
    with pytest.raises(NotAcceptable):
        negotiate("application/json" + ";" * 60_000)
    assert not prefers_html("a/b," * 60_000 + "text/html")
