"""`kr8s`: `watch`, resumed by `since`, and a list."""

import asyncio
import os
import signal

import kr8s.asyncio
from telling import LIST_PAUSE, View, again_async, tell, tell_stores

KIND = "attempts.nodus.dev"


async def watching(view: View) -> None:
    api = await kr8s.asyncio.api(kubeconfig=os.environ["KUBECONFIG"])
    view.begins()
    async for kind, obj in api.watch(KIND, namespace=kr8s.ALL, since=view.version or None):
        view.took(kind, obj.raw.to_dict())


async def listing() -> None:
    """What `kr8s.get` lists has no version of its own: told as names alone."""
    api = await kr8s.asyncio.api(kubeconfig=os.environ["KUBECONFIG"])
    names = [obj.name async for obj in api.get(KIND, namespace="default")]
    one = [obj.name async for obj in api.get(KIND, names[0], namespace="default")]
    assert one in ([names[0]], []), one  # it may have gone meanwhile
    tell("kr8s-list", names=names)
    tell("kr8s-list", ready=True)


async def main() -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    view = View("kr8s")
    tasks = [
        asyncio.create_task(again_async("kr8s", lambda: watching(view))),
        asyncio.create_task(again_async("kr8s-list", listing, LIST_PAUSE)),
    ]
    await over.wait()
    tell_stores()
    for task in tasks:
        task.cancel()


asyncio.run(main())
