"""Follows the Attempts of a workload through the public watch (SC-801), as any client could.

A broken connection is made again from the last resourceVersion, so nothing is missed while a
server is replaced; a version that has expired means a new list.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodus_api.cli.api_client import ATTEMPTS, ApiClient, ApiRefusal, ApiUnreachable
from nodus_api.cli.errors import Failed
from nodus_api.clock import Clock

TERMINAL = frozenset({"Succeeded", "Failed", "Cancelled"})
_RETRY_SECONDS = 0.3
_TRY_AGAIN = frozenset({429, 500, 503, 504})
_GONE = 410


@dataclass(slots=True, kw_only=True)
class Board:
    """The Attempts as last seen, by name, and the version they were seen at."""

    attempts: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: str = ""
    reconnects: int = 0

    def settled(self) -> bool:
        """Return whether every Attempt seen has ended and its machine is proven gone."""
        return all(
            one["status"]["phase"] in TERMINAL
            and (
                "deletionProvenTime" in one["status"].get("timings", {})
                or "billingStartTime" not in one["status"].get("timings", {})
            )
            for one in self.attempts.values()
        )

    def ended(self) -> bool:
        """Return whether every Attempt seen has ended."""
        return all(one["status"]["phase"] in TERMINAL for one in self.attempts.values())


class Follower:
    """Keeps a board of one project's Attempts; `changed` is called after each change."""

    def __init__(
        self,
        client: ApiClient,
        *,
        project: str,
        selector: str,
        clock: Clock,
        changed: Callable[[dict[str, Any]], None],
    ) -> None:
        self.board = Board()
        self._client = client
        self._path = ATTEMPTS.format(project)
        self._query = {"labelSelector": selector} if selector else {}
        self._clock = clock
        self._changed = changed

    async def run(self) -> None:
        """Follow until cancelled. Raises Failed when the server refuses for good."""
        while True:
            try:
                if not self.board.version:
                    await self._list()
                await self._watch()
            except ApiUnreachable:
                self.board.reconnects += 1
            except ApiRefusal as refusal:
                if refusal.code == _GONE:
                    self.board.version = ""
                elif refusal.code not in _TRY_AGAIN:
                    raise Failed(
                        f"{self._client.server} refuses to show the Attempts: {refusal};"
                        " give the kubeconfig of a user who may, with --kubeconfig."
                    ) from refusal
            await self._clock.sleep(_RETRY_SECONDS)

    async def _list(self) -> None:
        found = await self._client.get_json(self._path, self._query)
        names = set()
        for one in found["items"]:
            names.add(one["metadata"]["name"])
            self._take(one)
        for name in [name for name in self.board.attempts if name not in names]:
            del self.board.attempts[name]
        self.board.version = found["metadata"]["resourceVersion"]

    async def _watch(self) -> None:
        query = {
            **self._query,
            "resourceVersion": self.board.version,
            "allowWatchBookmarks": "true",
        }
        async for event in self._client.watch(self._path, query):
            match event["type"], event["object"]:
                case "ERROR", status:
                    raise ApiRefusal(int(status.get("code", 500)), str(status.get("message")))
                case "BOOKMARK", one:
                    self.board.version = one["metadata"]["resourceVersion"]
                case "DELETED", one:
                    self.board.attempts.pop(one["metadata"]["name"], None)
                    self.board.version = one["metadata"]["resourceVersion"]
                case _, one:
                    self._take(one)
                    self.board.version = one["metadata"]["resourceVersion"]

    def _take(self, one: dict[str, Any]) -> None:
        name = one["metadata"]["name"]
        before = self.board.attempts.get(name)
        self.board.attempts[name] = one
        if before is None or _state(before) != _state(one):
            self._changed(one)


def _state(one: Mapping[str, Any]) -> str:
    status = one["status"]
    shown = {key: status.get(key) for key in ("phase", "reason", "progress", "exitCode", "signal")}
    cost = status.get("actual", {}).get("costUSD")
    return json.dumps([shown, cost, status.get("timings", {}).get("deletionProvenTime")])
