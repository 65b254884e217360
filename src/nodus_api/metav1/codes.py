"""The registry: every reason that this server can send, when it occurs and what to do (LW-202).

One table; the classes of `errors` name its rows, the pages of `error_docs` are made from
it, and a test sends each.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One registered reason.

    `http` are the HTTP statuses it comes with; none for a code that only stands as the
    `reason` of a cause or in an object. `when` and `remedy` are sentences for people; where
    kube-apiserver checks credentials and rights, `delegated` replaces the remedy.
    """

    reason: str
    http: tuple[int, ...] = ()
    when: str
    remedy: str
    delegated: str = ""

    def remedy_of(self, *, standalone: bool) -> str:
        """Return what to do, by who checks credentials and rights."""
        return self.remedy if standalone else self.delegated or self.remedy


def registry(codes: Iterable[Code]) -> Mapping[str, Code]:
    """Return codes by their reason. Raises ValueError when one is registered twice."""
    table: dict[str, Code] = {}
    for code in codes:
        if code.reason in table:
            raise ValueError(f"the code {code.reason} is registered twice")
        table[code.reason] = code
    return MappingProxyType(table)


CODES = registry(
    (
        Code(
            reason="BadRequest",
            http=(400,),
            when="A parameter of the request cannot be read: a number, a selector, a "
            "resourceVersion or a continue token that is not well formed, or a combination that "
            "has no meaning.",
            remedy="Correct the parameter that the message names, then send the request again.",
        ),
        Code(
            reason="Unauthorized",
            http=(401,),
            when="The request carries no credential, or one that is wrong, expired or revoked.",
            remedy="Send the header `Authorization: Bearer TOKEN` with a token of this server. "
            "Make one with `nodus token create --user NAME`, and a kubeconfig of it with "
            "`nodus kubeconfig --server URL --token-file FILE`. `nodus token list` shows which "
            "have expired or were revoked.",
            delegated="Send a credential that the cluster accepts, as in the kubeconfig that you "
            "use with its other resources.",
        ),
        Code(
            reason="Forbidden",
            http=(403,),
            when="The credential is good, but its user may not do this. A project that does not "
            "exist gives the same answer as one that the user may not see.",
            remedy="Have an administrator make the user a member of the project: "
            "`nodus project add-member NAME --user USER`. All projects at once, and /metrics, need "
            "the group nodus:admins: `nodus token create --user USER --group nodus:admins`. "
            "`kubectl auth can-i --list -n NAME` shows what is allowed.",
            delegated="Have an administrator of the cluster bind the ClusterRole "
            "nodus-attempts-view to the user, in the namespace or in all. `kubectl auth can-i "
            "--list -n NAME` shows what is allowed.",
        ),
        Code(
            reason="NotFound",
            http=(404,),
            when="There is no object of this name, or no such path on this server.",
            remedy="List what is there with `kubectl get attempts -A`, or `kubectl api-resources` "
            "for the paths. Finished attempts leave the API after a while: `nodus get --archived`.",
        ),
        Code(
            reason="MethodNotAllowed",
            http=(405,),
            when="A write was asked for. Attempts are a record of what happened and are read-only.",
            remedy="Act on the owner instead: `nodus submit`, `nodus stop`, `nodus scale`, `nodus "
            "delete`.",
        ),
        Code(
            reason="NotAcceptable",
            http=(406,),
            when="The Accept header names nothing that this server can answer with.",
            remedy="Accept application/json, alone or as the last of several types.",
        ),
        Code(
            reason="Conflict",
            http=(409,),
            when="A runner's report does not fit what is stored, such as a checkpoint out of "
            "sequence. Requests for attempts never get it.",
            remedy="The runner goes on with the next report; nothing is to be done by hand.",
        ),
        Code(
            reason="StaleEpoch",
            http=(409,),
            when="A runner reported for an epoch that has been replaced in its slot.",
            remedy="The runner kills its program and ends, since another one has taken its place.",
        ),
        Code(
            reason="Expired",
            http=(410,),
            when="The resourceVersion or continue token is older than the history that is kept. A "
            "watch of Attempts may start at most 5 minutes back (the setting "
            "NODUS_WATCHCACHE_WINDOW), however little happened since; an exact list, and the pages "
            "of a list, may be read for 1 hour (NODUS_FEED_RETENTION).",
            remedy="List again without resourceVersion, and watch from the version that list "
            "returns: a list is always a new start.",
        ),
        Code(
            reason="RequestEntityTooLarge",
            http=(413, 414, 431),
            when="The body, the URL or the header block is larger than this server reads.",
            remedy="Send less: at most 64 KiB of body, 32 KiB of URL and 256 KiB of headers.",
        ),
        Code(
            reason="UnsupportedMediaType",
            http=(415,),
            when="The body is in a form that this path does not read.",
            remedy="Send application/json.",
        ),
        Code(
            reason="Invalid",
            http=(422,),
            when="Each parameter can be read, but together they ask for something that is not "
            "defined.",
            remedy="Change the parameter that details.causes names.",
        ),
        Code(
            reason="TooManyRequests",
            http=(429,),
            when="A limit on requests or watches is reached, the cache is still being filled, or "
            "the server is about to stop.",
            remedy="Wait for the seconds in Retry-After, then send the same request again.",
        ),
        Code(
            reason="InternalError",
            http=(500,),
            when="The server met a fault of its own.",
            remedy="Report it with the requestId; the server's log has the cause under that id.",
        ),
        Code(
            reason="ServerTimeout",
            http=(500,),
            when="A read of older history took longer than the database may take.",
            remedy="Send the same request again after the seconds in Retry-After, or ask for less "
            "with limit or a selector.",
        ),
        Code(
            reason="ServiceUnavailable",
            http=(503,),
            when="Something that this answer needs cannot be reached: the database, or the "
            "cluster that checks credentials and rights.",
            remedy="Wait for the seconds in Retry-After. A list or get with resourceVersion=0 is "
            "answered from the cache meanwhile.",
        ),
        Code(
            reason="Timeout",
            http=(504,),
            when="The answer was not ready in time, or the resourceVersion asked for has not been "
            "reached here yet.",
            remedy="Send the request again. If it names a resourceVersion, make sure that it came "
            "from this server.",
        ),
        Code(
            reason="FieldValueForbidden",
            when="A cause of Invalid: the parameter may not be given together with another one, or "
            "without it.",
            remedy="Leave the parameter out, or give the one that the message names.",
        ),
        Code(
            reason="FieldValueNotSupported",
            when="A cause of Invalid: the parameter has a value that is not one of a fixed set.",
            remedy="Use one of the values that the message names.",
        ),
        Code(
            reason="ResourceVersionTooLarge",
            when="A cause of Timeout: this replica has not seen the resourceVersion asked for.",
            remedy="Repeat the request after a second; if it goes on, list without "
            "resourceVersion.",
        ),
    )
)
