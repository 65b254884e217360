"""`kubernetes-asyncio`: a list, and `Watch` with a timeout."""

import asyncio
import os
import signal

from kubernetes_asyncio import client, config, watch
from telling import LIST_PAUSE, WATCH_SECONDS, View, again_async, tell, tell_list, tell_stores

ATTEMPTS = ("nodus.dev", "v1")


async def listing(api: client.CustomObjectsApi) -> None:
    found = await api.list_cluster_custom_object(*ATTEMPTS, "attempts")
    tell_list("aio-list", found["metadata"]["resourceVersion"], found["items"])
    tell("aio-list", ready=True)


async def watching(api: client.CustomObjectsApi, view: View) -> None:
    more = {"resource_version": view.version} if view.version else {}
    view.begins()
    async with watch.Watch() as watcher:
        async for event in watcher.stream(
            api.list_namespaced_custom_object,
            *(*ATTEMPTS, "default", "attempts"),
            timeout_seconds=WATCH_SECONDS,
            allow_watch_bookmarks=True,
            **more,
        ):
            view.took(event["type"], event["object"])


async def main() -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    await config.load_kube_config(os.environ["KUBECONFIG"])
    view = View("aio-watch")
    async with client.ApiClient() as connection:
        api = client.CustomObjectsApi(connection)
        tasks = [
            asyncio.create_task(again_async("aio-list", lambda: listing(api), LIST_PAUSE)),
            asyncio.create_task(again_async("aio-watch", lambda: watching(api, view))),
        ]
        await over.wait()
        tell_stores()
        for task in tasks:
            task.cancel()


asyncio.run(main())
