"""`kopf`: an operator with one handler of events."""

import asyncio
from typing import Any

import kopf
from telling import WATCH_SECONDS, View, tell_stores

view = View("kopf")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.watching.server_timeout = WATCH_SECONDS
    settings.batching.batch_window = 0.02
    settings.networking.error_backoffs = [0.5] * 600


@kopf.on.login()
def login(**given: Any) -> Any:
    return kopf.login_with_kubeconfig(**given)


@kopf.on.event("nodus.dev", "v1", "attempts")
def seen(event: Any, **_: Any) -> None:
    view.took(event["type"] or "LISTED", dict(event["object"]))


async def main() -> None:
    try:
        await kopf.operator(clusterwide=True, standalone=True)  # until SIGTERM, which it takes
    finally:
        tell_stores()


asyncio.run(main())
