"""Both servers with the same objects, written one after another in the same order.

Versions of the two differ. A version is known by the number of the write that made it: `w3` is the
third write's in either, and the version of a list is that of the last write that it shows.
"""

import bisect
import copy
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from tests.apiserver.conftest import START
from tests.apiserver.raw import PATIENCE
from tests.apiserver.serving import Served, served
from tests.attempts.examples import EXAMPLES
from tests.differential.crd import definition
from tests.differential.kube import Kube
from tests.watchcache.conftest import until
from tests.watchcache.feed_log import FeedLog, Row

from nodus_api.apiserver import ServerOptions
from nodus_api.attempts import resource
from nodus_api.attempts.projection import render

FIRST = 1_000_000
"""The revision that our log begins with: what came before is lost (LW-123)."""
FUTURE = 1_000_000
"""How far ahead of the newest a version is that no server has reached."""
OPTIONS = ServerOptions(
    public_url="https://nodus.test",
    shutdown_delay=timedelta(0),
    shutdown_watch_grace=timedelta(0),
    max_lists_per_user=400,
    max_watches_per_user=2000,
    max_failed_logins=10_000,
)
_PLACEHOLDER = re.compile(r"@([a-z]+[0-9]*)@")


@dataclass
class Versions:
    """The versions of one server's writes, in order."""

    of_writes: list[int] = field(default_factory=list)

    def symbol(self, version: str) -> str:
        """Return which write a version shows the state of."""
        if not version.isdigit():
            return version
        number = int(version)
        if self.of_writes and number >= self.of_writes[-1] + FUTURE // 2:
            return "future"
        return f"w{bisect.bisect_right(self.of_writes, number)}"

    def value(self, name: str) -> str | None:
        """Return the version that a symbol of a request means on this server."""
        if name == "old":
            return "1"
        if name == "head":
            return str(self.of_writes[-1])
        if name == "future":
            return str(self.of_writes[-1] + FUTURE)
        if name.startswith("w"):
            return str(self.of_writes[int(name[1:]) - 1])
        return None


@dataclass
class Side:
    """One of the two servers: where it is, and what is peculiar to it."""

    name: str
    port: int
    context: Any
    versions: Versions = field(default_factory=Versions)
    values: dict[str, str] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        """Put versions and tokens of this server in place of `@w3@`, `@head@`, `@page@`."""

        def value(found: re.Match[str]) -> str:
            known = self.values.get(found[1]) or self.versions.value(found[1])
            return found[0] if known is None else known

        return _PLACEHOLDER.sub(value, text)


@dataclass
class Pair:
    """The real server and ours."""

    kube_server: Kube
    our_server: Served
    kube: Side
    ours: Side
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kube, self.ours

    async def create(
        self, project: str, name: str, example: str, *, note: str = "", **labels: str
    ) -> None:
        """Write one of the examples of tests/attempts, under this name; `note` makes it large."""
        document, selected = _example(project, name, example, labels)
        if note:
            document["metadata"].setdefault("annotations", {})["example.org/note"] = note
        made = await self.kube_server.write("POST", _path(project), document)
        for key in ("uid", "creationTimestamp"):
            document["metadata"][key] = made["metadata"][key]
        self.documents[f"{project}/{name}"] = document
        self._record("A", document, selected)
        self._wrote(made["metadata"]["resourceVersion"])

    async def change(self, project: str, name: str, example: str, **labels: str) -> None:
        """Let an object become as another of the examples."""
        old = self.documents[f"{project}/{name}"]["metadata"]
        document, selected = _example(project, name, example, labels)
        for key in ("uid", "creationTimestamp"):
            document["metadata"][key] = old[key]
        path = f"{_path(project)}/{name}"
        current = await self.kube_server.write("GET", path)
        sent = copy.deepcopy(document)
        sent["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
        made = await self.kube_server.write("PUT", path, sent)
        self.documents[f"{project}/{name}"] = document
        self._record("M", document, selected)
        self._wrote(made["metadata"]["resourceVersion"])

    async def delete(self, project: str, name: str) -> None:
        """Delete an object; only a watch tells which version that made."""
        document = self.documents.pop(f"{project}/{name}")
        since = self.kube.versions.of_writes[-1]
        await self.kube_server.write("DELETE", f"{_path(project)}/{name}")
        version = await self._deletion(project, name, since)
        self._record("D", document, {})
        self._wrote(version)

    async def _deletion(self, project: str, name: str, since: int) -> str:
        """Return the version of an object's deletion, which came after another."""
        query = f"watch=1&resourceVersion={since}&fieldSelector=metadata.name%3D{name}"
        async with self.kube_server.http.stream("GET", f"{_path(project)}?{query}") as events:
            async for line in events.aiter_lines():
                event = orjson.loads(line)
                if event["type"] == "DELETED":
                    return str(event["object"]["metadata"]["resourceVersion"])
        raise AssertionError("the watch ended before the deletion")

    async def caught_up(self) -> None:
        """Wait until our server has all that its log says."""
        cache, log = self.our_server.replica.cache, self.our_server.replica.log
        await until(lambda: cache.position >= log.rows[-1].rev, PATIENCE)

    def _record(self, kind: str, document: Mapping[str, Any], selected: Mapping[str, Any]) -> None:
        metadata = document["metadata"]
        rev = self.our_server.replica.log.record(
            kind,
            UUID(metadata["uid"]),
            metadata["namespace"],
            metadata["name"],
            orjson.dumps(selected).decode(),
            orjson.dumps(document),
        )
        self.ours.versions.of_writes.append(rev)

    def _wrote(self, version: str) -> None:
        self.kube.versions.of_writes.append(int(version))


@asynccontextmanager
async def paired(kube: Kube, folder: Path, projects: Mapping[str, bool]) -> AsyncIterator[Pair]:
    """Both servers without an object; `projects` says which ones alice may see."""
    made = await kube.write("POST", _CRDS, definition())
    for project, alice in projects.items():
        await _namespace(kube, project, alice=alice)
    name = made["metadata"]["name"]
    await _until_served(kube, name)
    listed = await kube.write("GET", f"/apis/{resource.GROUP_VERSION}/{resource.RESOURCE}")
    await kube.compact(int(listed["metadata"]["resourceVersion"]))
    log = FeedLog(rows=[Row(rev=FIRST, kind="E", tx=1)], lost_below=FIRST - 1)
    async with served(folder, OPTIONS, log=log) as ours:
        tables = ours.replica.tables
        for project, alice in projects.items():
            if project not in tables.projects:
                tables.project(project, START)
            if alice and project != "example":
                tables.member(project, "user", "alice")
        yield Pair(
            kube_server=kube,
            our_server=ours,
            kube=Side("kube", kube.port, kube.context),
            ours=Side("ours", ours.port, ours.context),
        )


_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def _namespace(kube: Kube, project: str, *, alice: bool) -> None:
    if project != "default":
        await kube.write("POST", "/api/v1/namespaces", {"metadata": {"name": project}})
    if not alice:
        return
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": [resource.GROUP],
        "resources": [resource.RESOURCE],
        "verbs": list(resource.VERBS),
    }
    home = f"{_RBAC}/namespaces/{project}"
    await kube.write("POST", f"{home}/roles", {"metadata": {"name": "member"}, "rules": [rule]})
    await kube.write(
        "POST",
        f"{home}/rolebindings",
        {
            "metadata": {"name": "alice"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "member"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
        },
    )


async def _until_served(kube: Kube, name: str) -> None:
    path = f"/apis/{resource.GROUP_VERSION}"
    while True:
        got = await kube.http.get(path)
        if got.status_code == 200:
            listed = await kube.http.get(f"{path}/{resource.RESOURCE}")
            if listed.status_code == 200:
                return
        status = (await kube.write("GET", f"{_CRDS}/{name}")).get("status", {})
        told = {one["type"]: one for one in status.get("conditions", ())}
        assert told.get("NonStructuralSchema", {}).get("status") != "True", told


def _path(project: str) -> str:
    return f"/apis/{resource.GROUP_VERSION}/namespaces/{project}/{resource.RESOURCE}"


def _example(
    project: str, name: str, example: str, labels: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    view = EXAMPLES[example]
    made = render(replace(view, attempt=replace(view.attempt, project=project, name=name)))
    document = orjson.loads(made.doc)
    del document["metadata"]["uid"], document["metadata"]["creationTimestamp"]
    document["metadata"]["labels"] |= labels
    return document, {
        "labels": document["metadata"]["labels"],
        "fields": made.sel["fields"],
    }
