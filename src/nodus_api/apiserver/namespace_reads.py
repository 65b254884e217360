"""Get, list and watch of projects as core namespaces, in stand-alone mode (LW-016).

The list is the one that is narrowed: it holds what the caller may see. Revisions are those of
`access_changes`, a space of their own.
"""

from collections.abc import Sequence

from nodus_api.apiserver.access import ProjectRecord
from nodus_api.apiserver.access_behind import AccessBehind
from nodus_api.apiserver.access_cache import AccessCache
from nodus_api.apiserver.access_view import AccessView, ProjectView
from nodus_api.apiserver.answers import Answer
from nodus_api.apiserver.errors import CACHE_ERRORS, expired_list, of_cache
from nodus_api.apiserver.identity import User
from nodus_api.apiserver.namespace_watch import (
    Choice,
    ProjectWatcher,
    ProjectWatchers,
    namespace_body,
)
from nodus_api.apiserver.reads import (
    ReadTools,
    expired_token,
    including,
    list_answer,
    object_answer,
    object_name,
    parse_options,
    rendering_of,
    shard_info,
    watch_answer,
)
from nodus_api.apiserver.render import NAMESPACE_FORM
from nodus_api.apiserver.request import Request, Target
from nodus_api.metav1 import continue_token, namespaces
from nodus_api.metav1.continue_token import Continuation, Seal
from nodus_api.metav1.errors import NotFound
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.objects import ListMeta
from nodus_api.metav1.resource_version import parse_resource_version
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt, at_least, of_list, of_watch
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    StateNotReached,
    StateTooOld,
)

PATH = "/api/v1/namespaces"


class NamespaceReads:
    """Answers the three verbs of namespaces from the access view."""

    def __init__(
        self,
        access: AccessCache,
        behind: AccessBehind,
        watchers: ProjectWatchers,
        cache: AttemptCache,
        tools: ReadTools,
    ) -> None:
        """`behind` answers where `access` lags; `cache` lends the key of continue tokens."""
        self._access = access
        self._behind = behind
        self._watchers = watchers
        self._cache = cache
        self._tools = tools

    async def answer(self, request: Request) -> Answer:
        """Return the answer to a request for namespaces. Raises APIError."""
        try:
            if request.info.target is Target.OBJECT:
                return await self._get(request)
            if request.info.verb == "watch":
                return self._watch(request)
            return await self._list(request)
        except CACHE_ERRORS as error:
            raise of_cache(error, too_old=expired_list) from error

    async def _get(self, request: Request) -> Answer:
        rendering = rendering_of(request, NAMESPACE_FORM, self._tools.clock)
        name = object_name(request)
        given = request.query.get("resourceVersion", "")
        revision = parse_resource_version(given)
        view = await self._newest_or(at_least(revision if given else None))
        project = view.project(name)
        if project is None:
            raise NotFound.object(namespaces.NAMESPACES, name)
        return object_answer(request, rendering, namespace_body(project))

    async def _list(self, request: Request) -> Answer:
        rendering = rendering_of(request, NAMESPACE_FORM, self._tools.clock)
        options = parse_options(request, namespaces.SUPPORTED_FIELDS)
        seal = self._seal(options) if options.limit or options.continue_ else None
        at, start = _place(options, seal)
        try:
            view = await self._newest_or(at)
        except StateTooOld as error:
            if not options.continue_ or seal is None:
                raise
            raise expired_token(options, seal) from error
        found = [
            project
            for project in self._visible(view, _user(request), _chooser(options))
            if project.record.name >= start
        ]
        limit = 0 if options.resource_version == "0" else options.limit
        shown = found[:limit] if limit else found
        rev = at.rev if at.mode is Mode.EXACT else view.rev
        metadata = _metadata(rev, shown, len(found) - len(shown), options, seal)
        return await list_answer(request, rendering, metadata, [namespace_body(p) for p in shown])

    def _watch(self, request: Request) -> Answer:
        rendering = rendering_of(request, NAMESPACE_FORM, self._tools.clock)
        options = parse_options(request, namespaces.SUPPORTED_FIELDS)
        self._loaded()
        user, chosen = _user(request), _chooser(options)

        async def begin() -> ProjectWatcher:
            return await self._begin(options, user, chosen)

        return watch_answer(self._tools, options, including(request, rendering), begin)

    async def _begin(self, options: ListOptions, user: User, chosen: Choice) -> ProjectWatcher:
        start = of_watch(options.asked, options.send_initial_events)
        initial: Sequence[ProjectView] | None = None
        if not start.initial and start.at.mode is Mode.EXACT:
            position = start.at.rev
            if position < self._access.floor:
                raise StateTooOld(position, self._access.floor + 1)
        else:
            view = await self._view(start.at)
            position = view.rev
            if start.initial:
                initial = self._visible(view, user, chosen)
        watcher = ProjectWatcher(
            self._access,
            self._watchers,
            user=user,
            chosen=chosen,
            position=position,
            initial=initial,
        )
        self._watchers.add(watcher)
        return watcher

    # -- state -----------------------------------------------------------------------------------

    def _seal(self, options: ListOptions) -> Seal:
        return Seal(key=self._cache.continue_key, path=PATH, selectors=options.selectors)

    def _loaded(self) -> AccessView:
        view = self._access.view
        if view is None:
            raise FeedUnavailable(cached=False) if self._access.refused else CacheWarming
        return view

    async def _newest_or(self, at: ReadAt) -> AccessView:
        """Return the same as `_view`; the newest state is read around a view that lags (LW-103)."""
        if at.mode is Mode.EXACT and (kept := self._behind.kept(at.rev)) is not None:
            return kept
        try:
            return await self._view(at)
        except StateNotReached as late:
            if at.mode is not Mode.LATEST:
                raise
            return await self._behind.view(late)

    async def _view(self, at: ReadAt) -> AccessView:
        """Return a view as new, or exactly as old, as was asked for."""
        view = self._loaded()
        if at.mode is Mode.CACHED:
            return view
        rev = at.rev
        if at.mode is Mode.LATEST:
            try:
                rev = await self._access.head()
            except Exception as error:  # the source's errors are not known here
                raise FeedUnavailable from error
        if not await self._access.reach(rev):
            raise StateNotReached(rev, self._loaded().rev)
        if at.mode is not Mode.EXACT:
            return self._loaded()
        found = self._access.view_at(rev)
        if found is None:
            raise StateTooOld(rev, self._access.floor + 1)
        return found

    def _visible(self, view: AccessView, user: User, chosen: Choice) -> list[ProjectView]:
        """Return what the user saw at the view, and may still see.

        Rights are of now, as kube-apiserver's are, however old the state that is read: an old one
        never shows what the user may not see any more. What he could not see then is no part of
        the state at that revision, so a watch from it brings it once (LW-135).
        """
        loaded = self._loaded()
        now = view if view.rev > loaded.rev else loaded
        return [
            project
            for project in view.projects()
            if project.visible_to(user)
            and now.may_read(user, project.record.name)
            and chosen(project.record)
        ]


def _user(request: Request) -> User:
    if request.user is None:
        raise AssertionError("a request is authenticated before it is answered")
    return request.user


def _chooser(options: ListOptions) -> Choice:
    """Return whether the selectors choose a project."""
    shards = options.shard_selector

    def chosen(record: ProjectRecord) -> bool:
        # a namespace is in none: metadata.namespace is empty
        return (
            options.label_selector.matches(namespaces.labels_of(record.name))
            and options.field_selector.matches(namespaces.fields_of(record.name))
            and (shards is None or shards.matches(uid=str(record.uid), namespace=""))
        )

    return chosen


def _place(options: ListOptions, seal: Seal | None) -> tuple[ReadAt, str]:
    if not options.continue_ or seal is None:
        return of_list(options.asked, options.resource_version_match, options.limit), ""
    token = continue_token.decode(options.continue_, seal)
    at = LATEST if token.rev == continue_token.INCONSISTENT else ReadAt(Mode.EXACT, token.rev)
    return at, f"{token.name}\0"


def _metadata(
    rev: int, shown: Sequence[ProjectView], left: int, options: ListOptions, seal: Seal | None
) -> ListMeta:
    more = seal is not None and left > 0
    return ListMeta(
        resource_version=str(rev),
        continue_=(
            continue_token.encode(Continuation(rev=rev, name=shown[-1].record.name), seal)
            if more and seal is not None
            else None
        ),
        remaining_item_count=left if more and not options.has_selector else None,
        shard_info=shard_info(options),
    )
