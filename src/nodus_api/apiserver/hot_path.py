"""Get, list and watch of Attempts, answered in front of FastAPI (performance.md section 5)."""

from collections.abc import Callable

from nodus_api.apiserver.answers import Answer
from nodus_api.apiserver.errors import CACHE_ERRORS, expired_list, of_cache
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
from nodus_api.apiserver.render import ATTEMPT_FORM
from nodus_api.apiserver.request import Request, RequestInfo, Target
from nodus_api.attempts.resource import ATTEMPTS, GROUP_VERSION, RESOURCE, no_project
from nodus_api.attempts.selectable import SUPPORTED
from nodus_api.metav1 import continue_token
from nodus_api.metav1.continue_token import Continuation, Seal
from nodus_api.metav1.errors import NotFound
from nodus_api.metav1.fields import NAME
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.objects import ListMeta
from nodus_api.metav1.resource_version import parse_resource_version
from nodus_api.watchcache import AttemptCache, Page
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt, at_least, of_list, of_watch
from nodus_api.watchcache.errors import StateTooOld
from nodus_api.watchcache.filters import Filter
from nodus_api.watchcache.snapshot import Start


class AttemptReads:
    """Answers the three verbs of Attempts from the watch cache."""

    def __init__(
        self,
        cache: AttemptCache,
        tools: ReadTools,
        *,
        is_project: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_project` tells whether there is a project, where this server knows them."""
        self._cache = cache
        self._tools = tools
        self._is_project = is_project

    async def answer(self, request: Request) -> Answer:
        """Return the answer to a request for Attempts. Raises APIError."""
        if request.info.target is Target.OBJECT:
            return await self.get(request)
        if request.info.verb == "watch":
            return self.watch(request)
        return await self.list(request)

    async def get(self, request: Request) -> Answer:
        """Return one Attempt (LW-003, LW-105)."""
        info = request.info
        rendering = rendering_of(request, ATTEMPT_FORM, self._tools.clock)
        name = object_name(request)
        given = request.query.get("resourceVersion", "")
        revision = parse_resource_version(given)
        try:
            entry = await self._cache.get(
                info.namespace, name, at_least(revision if given else None)
            )
        except CACHE_ERRORS as error:
            raise of_cache(error, too_old=expired_list) from error
        if entry is None or entry.body is None:
            if not self._is_project(info.namespace):
                raise no_project(name, info.namespace)
            raise NotFound.object(ATTEMPTS, name, namespace=info.namespace)
        return object_answer(request, rendering, entry.body)

    async def list(self, request: Request) -> Answer:
        """Return Attempts of a project or of all (LW-101, LW-106 to LW-117)."""
        rendering = rendering_of(request, ATTEMPT_FORM, self._tools.clock)
        options = parse_options(request, SUPPORTED)
        try:
            seal = self._seal(request.info, options) if _pages(options) else None
            page = await self._page(request.info, options, seal)
        except CACHE_ERRORS as error:
            raise of_cache(error, too_old=expired_list) from error
        metadata = ListMeta(
            resource_version=str(page.rev),
            continue_=_next_token(request.info, page, seal) if seal and page.more else None,
            remaining_item_count=page.remaining,
            shard_info=shard_info(options),
        )
        return await list_answer(request, rendering, metadata, page.bodies())

    def watch(self, request: Request) -> Answer:
        """Return a stream of changes (section 5). Raises what refuses it at once (LW-122)."""
        rendering = rendering_of(request, ATTEMPT_FORM, self._tools.clock)
        options = parse_options(request, SUPPORTED)
        try:
            self._cache.check_watch()
        except CACHE_ERRORS as error:
            raise of_cache(error, too_old=expired_list) from error
        begin = of_watch(options.asked, options.send_initial_events)
        chosen = _filter(options)
        project = request.info.project
        return watch_answer(
            self._tools,
            options,
            including(request, rendering),
            lambda: self._cache.watch(project, begin, chosen=chosen),
        )

    # -- pages -------------------------------------------------------------------------------

    def _seal(self, info: RequestInfo, options: ListOptions) -> Seal:
        return Seal(
            key=self._cache.continue_key,
            path=canonical_path(info.namespace),
            selectors=options.selectors,
        )

    async def _page(self, info: RequestInfo, options: ListOptions, seal: Seal | None) -> Page:
        at, start = self._place(info, options, seal)
        # kube-apiserver ignores a limit beside version 0, of a following page, too
        limit = 0 if options.resource_version == "0" else options.limit
        try:
            return await self._cache.list(
                info.project, at, chosen=_filter(options), limit=limit, start=start
            )
        except StateTooOld as error:
            if not options.continue_ or seal is None:
                raise
            raise expired_token(options, seal) from error

    def _place(
        self, info: RequestInfo, options: ListOptions, seal: Seal | None
    ) -> tuple[ReadAt, Start | None]:
        """Return the state to read and where the page begins."""
        if not options.continue_ or seal is None:
            return of_list(options.asked, options.resource_version_match, options.limit), None
        token = continue_token.decode(options.continue_, seal)
        start = (token.namespace or info.namespace, f"{token.name}\0")
        if token.rev == continue_token.INCONSISTENT:
            return LATEST, start
        return ReadAt(Mode.EXACT, token.rev), start


def canonical_path(project: str) -> str:
    """Return the list's path, however it was written; continue tokens are bound to it."""
    scope = f"/namespaces/{project}" if project else ""
    return f"/apis/{GROUP_VERSION}{scope}/{RESOURCE}"


def _pages(options: ListOptions) -> bool:
    return bool(options.limit or options.continue_)


def _filter(options: ListOptions) -> Filter:
    return Filter(
        labels=None if options.label_selector.empty else options.label_selector,
        fields=None if options.field_selector.empty else options.field_selector,
        shards=options.shard_selector,
        name=options.field_selector.exact(NAME),
    )


def _next_token(info: RequestInfo, page: Page, seal: Seal) -> str:
    last = page.entries[-1]
    namespace = "" if info.namespace else last.project
    return continue_token.encode(
        Continuation(rev=page.rev, name=last.name, namespace=namespace), seal
    )
