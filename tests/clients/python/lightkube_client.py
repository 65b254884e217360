"""`lightkube`: a watch that it goes on with by itself, and a list in pages."""

import os

from lightkube import Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import OnErrorAction, OnErrorResult
from telling import LIST_PAUSE, PAGE, PAUSE, WATCH_SECONDS, View, again, run, tell, tell_list

Attempt = create_namespaced_resource("nodus.dev", "v1", "Attempt", "attempts")


def connected() -> Client:
    return Client(config=KubeConfig.from_file(os.environ["KUBECONFIG"]))


def watching(view: View) -> None:
    def failed(error: Exception, _count: int) -> OnErrorResult:
        view.failed(error)
        return OnErrorResult(OnErrorAction.RETRY, sleep=PAUSE)

    view.begins()
    for kind, obj in connected().watch(
        Attempt,
        namespace="*",
        server_timeout=WATCH_SECONDS,
        resource_version=view.version or None,
        on_error=failed,
    ):
        view.took(kind, obj.to_dict())


def listing() -> None:
    found = connected().list(Attempt, namespace="*", chunk_size=PAGE)
    items = [obj.to_dict() for obj in found]
    tell_list("lightkube-list", found.resourceVersion, items)
    tell("lightkube-list", ready=True)


def main() -> None:
    view = View("lightkube")
    run(again("lightkube", lambda: watching(view)), again("lightkube-list", listing, LIST_PAUSE))


main()
