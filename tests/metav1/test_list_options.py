"""List options: LW-080 to LW-092, and LW-006, LW-021, LW-102, LW-112."""

import pytest

from nodus_api.metav1 import fields, labels
from nodus_api.metav1.errors import BadRequest, Invalid
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.status import StatusCause

FORBIDDEN = "FieldValueForbidden"
MATCH = "resourceVersionMatch"


def test_nothing_asked_for_is_a_list_of_all() -> None:
    options = ListOptions.parse(b"")
    assert options == ListOptions()
    assert not options.has_selector
    assert options.selectors == ("", "", "")


@pytest.mark.parametrize(
    ("query", "revision"),
    [
        (b"resourceVersion=0&limit=5", 0),
        (b"resourceVersion=00", 0),
        (b"resourceVersion=00&limit=5&watch=1", 0),
        (b"limit=5", None),
        (b"resourceVersion=7&limit=5", 7),
        (b"resourceVersion=00&limit=5", None),
    ],
)
def test_only_a_zero_of_one_digit_leaves_pages_out(
    query: bytes, revision: int | None
) -> None:  # LW-101
    """kube-apiserver compares the text with "0": a list at another zero is paged, of now."""
    assert ListOptions.parse(query).asked == revision


def test_every_option_is_read() -> None:
    options = ListOptions.parse(
        b"watch=1&labelSelector=a%3Db&fieldSelector=status.phase%3DRunning&resourceVersion=7"
        b"&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true"
        b"&timeoutSeconds=30&limit=5&shardSelector=shardRange(object.metadata.uid,"
        b"'0x0000000000000000','0x8000000000000000')"
    )
    assert options.watch
    assert options.label_selector == labels.parse("a=b")
    assert options.field_selector == fields.parse("status.phase=Running")
    assert (options.resource_version, options.revision) == ("7", 7)
    assert options.resource_version_match == "NotOlderThan"
    assert options.send_initial_events is True
    assert options.allow_watch_bookmarks
    assert options.timeout_seconds == 30
    assert options.limit == 5
    assert options.has_selector
    assert options.selectors == (
        "a=b",
        "status.phase=Running",
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
    )


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=a",
        "fieldSelector=metadata.name%3Da",
        "shardSelector=shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
    ],
)
def test_any_selector_hides_how_many_remain(query: str) -> None:  # LW-111, LW-167
    assert ListOptions.parse(query).has_selector


def test_a_negative_limit_is_no_limit() -> None:  # LW-081, LW C-38
    assert ListOptions.parse("limit=-5").limit == 0


def test_how_long_a_watch_lasts() -> None:  # LW-143
    assert ListOptions.parse("watch=1").watch_seconds(2222.5) == 2222.5
    assert ListOptions.parse("watch=1&timeoutSeconds=0").watch_seconds(1800) == 1800
    assert ListOptions.parse("watch=1&timeoutSeconds=5").watch_seconds(1800) == 5
    assert ListOptions.parse("watch=1&timeoutSeconds=99999").watch_seconds(1800) == 3600
    assert ListOptions.parse("timeoutSeconds=-1").timeout_seconds == 0  # LW-092: ignored on a list
    with pytest.raises(BadRequest, match="timeoutSeconds: -1 is negative"):
        ListOptions.parse("watch=1&timeoutSeconds=-1")


def test_watch_is_ignored_where_it_has_no_meaning() -> None:  # LW-005, LW-007
    assert not ListOptions.parse("watch=1", watch_allowed=False).watch
    assert ListOptions.parse("", watch_forced=True).watch  # LW-006
    assert not ListOptions.parse("watch=0", watch_allowed=False, watch_forced=True).watch


def test_a_watch_by_its_path_alone_is_judged_as_a_list() -> None:  # LW-006, as kube-apiserver
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=5"
    with pytest.raises(Invalid, match="sendInitialEvents is forbidden for list"):
        ListOptions.parse(initial, watch_forced=True)
    assert ListOptions.parse(f"watch=1&{initial}", watch_forced=True).send_initial_events

    exact = "resourceVersionMatch=Exact&resourceVersion=5"
    assert ListOptions.parse(exact, watch_forced=True).watch
    with pytest.raises(Invalid, match="forbidden for watch"):
        ListOptions.parse(f"watch=1&{exact}", watch_forced=True)
    assert ListOptions.parse("", watch_forced=True).send_initial_events


@pytest.mark.parametrize(
    "query", ["watch=1", "watch=1&resourceVersion=", "watch=1&resourceVersion=0"]
)
def test_a_watch_from_now_begins_with_the_state(query: str) -> None:  # LW-083
    options = ListOptions.parse(query)
    assert options.send_initial_events is True
    assert options.resource_version_match == "NotOlderThan"


@pytest.mark.parametrize(
    ("query", "initial"),
    [
        ("watch=1&resourceVersion=5", None),
        ("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", False),
        ("", None),
    ],
)
def test_what_is_said_is_not_defaulted(query: str, initial: bool | None) -> None:  # LW-083
    assert ListOptions.parse(query).send_initial_events is initial


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        (  # LW-084, LW C-48
            "resourceVersionMatch=Exact",
            [
                (
                    MATCH,
                    FORBIDDEN,
                    "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is "
                    "provided",
                )
            ],
        ),
        (  # LW-085
            "resourceVersionMatch=Exact&resourceVersion=5&continue=x",
            [
                (
                    MATCH,
                    FORBIDDEN,
                    "Forbidden: resourceVersionMatch is forbidden when continue is provided",
                )
            ],
        ),
        (  # LW-086, LW C-50
            "resourceVersion=5&resourceVersionMatch=Foo",
            [
                (
                    MATCH,
                    "FieldValueNotSupported",
                    'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
                )
            ],
        ),
        (  # LW-087, LW C-49
            "resourceVersion=0&resourceVersionMatch=Exact",
            [
                (
                    MATCH,
                    FORBIDDEN,
                    'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                )
            ],
        ),
        (  # LW-088, LW C-51
            "sendInitialEvents=false",
            [
                (
                    "sendInitialEvents",
                    FORBIDDEN,
                    "Forbidden: sendInitialEvents is forbidden for list",
                )
            ],
        ),
        (  # LW-089, LW C-69
            "watch=1&sendInitialEvents=true",
            [
                (
                    MATCH,
                    FORBIDDEN,
                    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to "
                    "NotOlderThan",
                )
            ],
        ),
        (  # LW-090
            "watch=1&resourceVersionMatch=NotOlderThan",
            [
                (
                    MATCH,
                    FORBIDDEN,
                    "Forbidden: resourceVersionMatch is forbidden for watch unless "
                    "sendInitialEvents is provided",
                )
            ],
        ),
        (  # LW-091, LW C-69
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
            [
                (
                    MATCH,
                    FORBIDDEN,
                    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to "
                    "NotOlderThan",
                ),
                (
                    MATCH,
                    "FieldValueNotSupported",
                    'Unsupported value: "Exact": supported values: "NotOlderThan"',
                ),
            ],
        ),
        (  # LW-085
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
            [
                (
                    MATCH,
                    FORBIDDEN,
                    "Forbidden: resourceVersionMatch is forbidden when continue is provided",
                )
            ],
        ),
    ],
)
def test_combinations_without_meaning_are_invalid(
    query: str, causes: list[tuple[str, str, str]]
) -> None:
    with pytest.raises(Invalid) as error:  # field case A04
        ListOptions.parse(query)
    details = error.value.details
    assert details is not None
    assert (details.group, details.kind) == ("meta.k8s.io", "ListOptions")
    assert details.causes == tuple(
        StatusCause(field=field, reason=reason, message=body) for field, reason, body in causes
    )
    texts = [f"{field}: {body}" for field, _, body in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    assert error.value.message == f'ListOptions.meta.k8s.io "" is invalid: {text}'
    assert causes[0][0] in error.value.fix


def test_options_of_the_other_kind_are_ignored() -> None:  # LW-092
    assert ListOptions.parse("allowWatchBookmarks=true&timeoutSeconds=5").allow_watch_bookmarks
    watch = ListOptions.parse("watch=1&resourceVersion=5&limit=5&continue=x")
    assert watch.revision == 5


@pytest.mark.parametrize("where", ["", "&watch=1"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("abc", "invalid syntax"),
        ("-1", "invalid syntax"),
        ("1.0", "invalid syntax"),
        (str(2**64), "value out of range"),
    ],
)
def test_a_malformed_version_is_a_bad_request(
    text: str, why: str, where: str
) -> None:  # LW-102, LW C-52
    with pytest.raises(BadRequest) as error:
        ListOptions.parse(f"resourceVersion={text}{where}")
    assert error.value.message == (
        f'invalid resource version: resourceVersion: Invalid value: "{text}": '
        f'strconv.ParseUint: parsing "{text}": {why}'
    )


def test_continue_goes_with_no_version() -> None:  # LW-112, LW C-54
    assert ListOptions.parse("continue=x&resourceVersion=0").continue_ == "x"
    with pytest.raises(BadRequest) as error:
        ListOptions.parse("continue=x&resourceVersion=5")
    assert error.value.message == "specifying resource version is not allowed when using continue"


def test_selectors_have_a_length() -> None:  # AS-089
    ListOptions.parse({"fieldSelector": "a=" + "b" * 8190})
    with pytest.raises(BadRequest, match="fieldSelector is longer than 8192 bytes"):
        ListOptions.parse({"fieldSelector": "a=" + "b" * 8191})


def test_fields_are_judged_after_the_options() -> None:  # LW-021
    with pytest.raises(Invalid):
        ListOptions.parse("fieldSelector=x%3D1&sendInitialEvents=1", supported_fields=())
    with pytest.raises(BadRequest, match="field label not supported: x"):
        ListOptions.parse("fieldSelector=x%3D1&resourceVersion=abc", supported_fields=())


@pytest.mark.parametrize(
    "query", ["", "fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name%3D%3Da"]
)
def test_a_watch_path_with_a_name_selects_it(query: str) -> None:  # LW-006
    options = ListOptions.parse(query, watch_forced=True, name="a")
    assert options.field_selector == fields.parse("metadata.name=a")


@pytest.mark.parametrize(
    "selector", ["metadata.name%3Db", "status.phase%3DRunning", "metadata.name!%3Da"]
)
def test_a_watch_path_with_a_name_takes_no_other_selector(selector: str) -> None:  # LW-006
    with pytest.raises(BadRequest) as error:
        ListOptions.parse(f"fieldSelector={selector}", watch_forced=True, name="a")
    assert error.value.message == "fieldSelector metadata.name doesn't match requested name"
