"""`kubectl get -w`, started again when its watch ends, and `kubectl get --raw` of a watch.

Usage: kubectl_client.py KUBECTL NAME. The first client is NAME, the second NAME-raw. `get -w` ends
with its watch and cannot resume, so that each run begins with the state: its list, then a watch
from the list's version. What `--raw` streams is resumed from the last version, after each end by
the server's time.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from telling import WATCH_SECONDS, View, again_async, tell_stores

KUBECTL, NAME = sys.argv[1:]
PATH = "/apis/nodus.dev/v1/namespaces/default/attempts"
LINE = 1 << 24  # bytes
os.environ["KUBECACHEDIR"] = os.path.join(os.environ["TMPDIR"], "kube-cache")


@asynccontextmanager
async def kubectl(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run it to its end, with what it prints and what it logs in one stream, in order."""
    process = await asyncio.create_subprocess_exec(
        *(KUBECTL, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=LINE,
    )
    try:
        yield process
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def documents(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """Give each JSON document, indented or in one line, and each other line by itself."""
    assert process.stdout is not None
    lines: list[str] = []
    while line := (await process.stdout.readline()).decode():
        lines.append(line)
        if line == "}\n" or lines[0] != "{\n":
            yield "".join(lines)
            lines.clear()


async def watching(view: View) -> None:
    """One run of `get -w`. It logs the request of its watch once it has printed the whole list."""
    listed: list[dict[str, object]] | None = []
    said = ""
    command = ("get", "attempts", "-w", "-o", "json", "--output-watch-events", "-v=6")
    async with kubectl(*command) as process:
        async for document in documents(process):
            if not document.startswith("{"):
                if listed is not None and "watch=true" in document:
                    view.forgets()
                    for event in listed:
                        view.took(event["type"], event["object"])
                    listed = None
                elif document[:1] not in ("I", "W"):  # what it logs begins with its level
                    said += document
                continue
            event = json.loads(document)
            if listed is None:
                view.took(event["type"], event["object"])
            else:
                listed.append(event)
    if process.returncode or said:
        view.failed(f"exit code {process.returncode}: {said}")


async def raw(view: View) -> None:
    """One stream as it is, for so many seconds of the server."""
    query = f"watch=1&timeoutSeconds={WATCH_SECONDS}&resourceVersion={view.version}"
    said = ""
    view.begins()
    async with kubectl("get", "--raw", f"{PATH}?{query}") as process:
        async for document in documents(process):
            if document.startswith("{"):
                event = json.loads(document)
                view.took(event["type"], event["object"])
            else:
                said += document
    if process.returncode or said:
        view.failed(f"exit code {process.returncode}: {said}")


async def main() -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    whole, streamed = View(NAME), View(f"{NAME}-raw")
    tasks = [
        asyncio.create_task(again_async(whole.client, lambda: watching(whole))),
        asyncio.create_task(again_async(streamed.client, lambda: raw(streamed))),
    ]
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tell_stores()


asyncio.run(main())
