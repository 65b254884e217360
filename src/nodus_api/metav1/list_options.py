"""What a list or watch asks for: decoded, defaulted, validated (LW-080 to LW-092)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from nodus_api.metav1 import fields, labels, shards
from nodus_api.metav1.errors import BadRequest, FieldError, Invalid
from nodus_api.metav1.golang import quote
from nodus_api.metav1.query import boolean, integer, parse_query
from nodus_api.metav1.resource_version import parse_resource_version

MAX_SELECTOR_BYTES = 8 * 1024
MAX_WATCH_SECONDS = 3600
EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"

_FORBIDDEN = "FieldValueForbidden"
_NOT_SUPPORTED = "FieldValueNotSupported"
_MATCH = "resourceVersionMatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of one list or watch, checked.

    `limit` 0 means all. `resource_version` and `resource_version_match` are as given or
    defaulted (LW-083); `revision` is the former as a number, 0 when unset.
    `timeout_seconds` is 0 when unset and counts on a watch only; `continue_` and `limit`
    count on a list only (LW-092).
    """

    watch: bool = False
    label_selector: labels.Selector = labels.EVERYTHING
    field_selector: fields.Selector = fields.EVERYTHING
    shard_selector: shards.ShardSelector | None = None
    resource_version: str = ""
    resource_version_match: str = ""
    revision: int = 0
    limit: int = 0
    continue_: str = ""
    send_initial_events: bool | None = None
    allow_watch_bookmarks: bool = False
    timeout_seconds: int = 0

    @property
    def asked(self) -> int | None:
        """The revision asked for; None when unset, and for a list in pages at `00` or the like.

        kube-apiserver compares the text: only `0` leaves the pages out (LW-101).
        """
        paged = self.limit and not self.watch
        unset = not self.resource_version
        other_zero = paged and self.revision == 0 and self.resource_version != "0"
        return None if unset or other_zero else self.revision

    @classmethod
    def parse(
        cls,
        query: bytes | str | Mapping[str, str],
        *,
        watch_allowed: bool = True,
        watch_forced: bool = False,
        name: str | None = None,
        supported_fields: Collection[str] | None = None,
    ) -> "ListOptions":
        """Read, default and validate a query (LW-021: 400 decoding, 422, 400 fields, 400 version).

        `watch_allowed` is false where `watch` is ignored (LW-005, LW-007); `watch_forced` and
        `name` are those of the deprecated watch paths (LW-006). Without `supported_fields`
        every field may be selected by.

        Raises BadRequest or Invalid.
        """
        values = query if isinstance(query, Mapping) else parse_query(query)
        decoded = cls._decode(values, watch_allowed=watch_allowed, watch_forced=watch_forced)
        # a watch by its path alone is judged as a list, as kube-apiserver does
        by_path = watch_forced and boolean(values, "watch") is not True
        judge = _watch_errors if decoded.watch and not by_path else _list_errors
        named = _with_name(decoded, name)
        options = _defaulted(named)
        if errors := judge(named if by_path else options):
            raise Invalid(errors)
        if supported_fields is not None:
            options.field_selector.check(supported_fields)
        return _with_revision(options)

    @property
    def has_selector(self) -> bool:
        """Whether any selector narrows the answer, so that items left are not counted (LW-111)."""
        return not (
            self.label_selector.empty and self.field_selector.empty and self.shard_selector is None
        )

    @property
    def selectors(self) -> tuple[str, str, str]:
        """The three selectors in canonical form, which a continue token is bound to (LW-116)."""
        shard = "" if self.shard_selector is None else str(self.shard_selector)
        return str(self.label_selector), str(self.field_selector), shard

    def watch_seconds(self, chosen: float) -> float:
        """Return how long a watch lasts: as asked, at most 3600 s, or for `chosen` seconds.

        `chosen` is drawn by the caller, uniform in [1800, 3600) (LW-143).
        """
        return (
            float(min(self.timeout_seconds, MAX_WATCH_SECONDS)) if self.timeout_seconds else chosen
        )

    @classmethod
    def _decode(
        cls, values: Mapping[str, str], *, watch_allowed: bool, watch_forced: bool
    ) -> "ListOptions":
        for key in ("labelSelector", "fieldSelector"):
            if len(values.get(key, "")) > MAX_SELECTOR_BYTES:
                raise BadRequest(
                    f"{key} is longer than {MAX_SELECTOR_BYTES} bytes",
                    fix=f"Shorten {key}, or ask in several requests.",
                )
        watch = watch_allowed and (watch_forced or boolean(values, "watch") is True)
        seconds = integer(values, "timeoutSeconds") or 0
        limit = integer(values, "limit") or 0
        if watch and seconds < 0:
            raise BadRequest(
                f"invalid timeoutSeconds: {seconds} is negative",
                fix="Give timeoutSeconds as a positive number of seconds, or leave it out.",
            )
        return cls(
            watch=watch,
            label_selector=labels.parse(values.get("labelSelector", "")),
            field_selector=fields.parse(values.get("fieldSelector", "")),
            shard_selector=shards.parse(values.get("shardSelector", "")),
            resource_version=values.get("resourceVersion", ""),
            resource_version_match=values.get(_MATCH, ""),
            limit=max(limit, 0),
            continue_=values.get("continue", ""),
            send_initial_events=boolean(values, "sendInitialEvents"),
            allow_watch_bookmarks=boolean(values, "allowWatchBookmarks") is True,
            timeout_seconds=max(seconds, 0),
        )


def _with_name(options: ListOptions, name: str | None) -> ListOptions:
    if name is None or options.field_selector.exact(fields.NAME) == name:
        return options
    if not options.field_selector.empty:
        raise BadRequest(
            "fieldSelector metadata.name doesn't match requested name",
            fix="Leave fieldSelector out, or watch the list path with it.",
        )
    only = fields.Selector(requirements=(fields.Requirement(field=fields.NAME, value=name),))
    return replace(options, field_selector=only)


def _defaulted(options: ListOptions) -> ListOptions:
    """A watch from now begins with the state, unless it says otherwise (LW-083)."""
    if (
        options.watch
        and options.resource_version in ("", "0")
        and options.send_initial_events is None
        and not options.resource_version_match
    ):
        return replace(options, send_initial_events=True, resource_version_match=NOT_OLDER_THAN)
    return options


def _with_revision(options: ListOptions) -> ListOptions:
    if options.continue_ and not options.watch:
        if options.resource_version not in ("", "0"):  # LW-112
            raise BadRequest(
                "specifying resource version is not allowed when using continue",
                fix="Leave resourceVersion out; the continue token holds the version.",
            )
        return options
    return replace(options, revision=parse_resource_version(options.resource_version))


def _forbidden(name: str, text: str, *, fix: str = "") -> FieldError:
    return FieldError(field=name, reason=_FORBIDDEN, body=f"Forbidden: {text}", fix=fix)


def _unsupported(value: str, supported: str) -> FieldError:
    body = f"Unsupported value: {quote(value)}: supported values: {supported}"
    return FieldError(field=_MATCH, reason=_NOT_SUPPORTED, body=body)


def _list_errors(options: ListOptions) -> list[FieldError]:
    """Return what LW-084 to LW-088 forbid."""
    errors = []
    match = options.resource_version_match
    if match and not options.resource_version:
        errors.append(
            _forbidden(
                _MATCH,
                f"{_MATCH} is forbidden unless resourceVersion is provided",
                fix="Add resourceVersion, such as metadata.resourceVersion of an earlier list, or "
                f"leave out {_MATCH}.",
            )
        )
    if match and options.continue_:
        errors.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    if match not in ("", EXACT, NOT_OLDER_THAN):
        errors.append(_unsupported(match, '"Exact", "NotOlderThan", ""'))
    if match == EXACT and options.resource_version == "0":
        errors.append(_forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        errors.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    """Return what LW-085 and LW-089 to LW-091 forbid."""
    errors = []
    match = options.resource_version_match
    given = options.send_initial_events is not None
    if given and match != NOT_OLDER_THAN:
        errors.append(
            _forbidden(
                _MATCH,
                f"sendInitialEvents requires setting {_MATCH} to {NOT_OLDER_THAN}",
                fix=""
                if match
                else f"Add {_MATCH}={NOT_OLDER_THAN}, or leave out sendInitialEvents.",
            )
        )
    if match and not given:
        errors.append(
            _forbidden(
                _MATCH,
                f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided",
                fix=f"Add sendInitialEvents=true, or leave out {_MATCH}."
                if match == NOT_OLDER_THAN
                else "",
            )
        )
    if match not in ("", NOT_OLDER_THAN):
        errors.append(_unsupported(match, '"NotOlderThan"'))
    if match and options.continue_:
        errors.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    return errors
