"""The official client, `kubernetes`: lists, pages, `Watch` with and without a timeout, dynamic."""

import os

from kubernetes import client, config, watch
from kubernetes.dynamic import DynamicClient
from telling import LIST_PAUSE, PAGE, WATCH_SECONDS, View, again, run, tell, tell_list

ATTEMPTS = ("nodus.dev", "v1")
KIND = "attempts"

config.load_kube_config(os.environ["KUBECONFIG"])


def listing() -> None:
    api = client.CustomObjectsApi()
    found = api.list_cluster_custom_object(*ATTEMPTS, KIND)
    tell_list("py-list", found["metadata"]["resourceVersion"], found["items"])
    page = api.list_cluster_custom_object(*ATTEMPTS, KIND, limit=PAGE)
    items, version = page["items"], page["metadata"]["resourceVersion"]
    while token := page["metadata"].get("continue"):
        page = api.list_cluster_custom_object(*ATTEMPTS, KIND, limit=PAGE, _continue=token)
        items += page["items"]
    tell_list("py-pages", version, items)
    for name in ("py-list", "py-pages"):
        tell(name, ready=True)


def timed(view: View) -> None:
    """A watch that is asked to end after a while, resumed by the version that `Watch` keeps."""
    watcher = watch.Watch()
    more = {"resource_version": view.version} if view.version else {}
    view.begins()
    for event in watcher.stream(
        client.CustomObjectsApi().list_namespaced_custom_object,
        *(*ATTEMPTS, "default", KIND),
        timeout_seconds=WATCH_SECONDS,
        **more,
    ):
        view.took(event["type"], event["object"])
    assert watcher.resource_version == view.version


def untimed(view: View) -> None:
    """A watch that `Watch` itself goes on with when the server ends it."""
    more = {"resource_version": view.version} if view.version else {}
    view.begins()
    for event in watch.Watch().stream(
        client.CustomObjectsApi().list_cluster_custom_object,
        *(*ATTEMPTS, KIND),
        **more,
    ):
        view.took(event["type"], event["object"])


def dynamic(view: View, found: DynamicClient) -> None:
    attempts = found.resources.get(api_version="nodus.dev/v1", kind="Attempt")
    view.begins()
    for event in attempts.watch(
        timeout=WATCH_SECONDS, **({"resource_version": view.version} if view.version else {})
    ):
        view.took(event["type"], event["object"].to_dict())


def dynamic_list(found: DynamicClient) -> None:
    attempts = found.resources.get(api_version="nodus.dev/v1", kind="Attempt")
    page = attempts.get(namespace="default").to_dict()
    tell_list("py-dynamic-list", page["metadata"]["resourceVersion"], page["items"])
    tell("py-dynamic-list", ready=True)


def main() -> None:
    found = DynamicClient(client.ApiClient())
    timed_view, untimed_view, dynamic_view = map(View, ("py-watch", "py-watch-on", "py-dynamic"))
    run(
        again("py-list", listing, LIST_PAUSE),
        again("py-watch", lambda: timed(timed_view)),
        again("py-watch-on", lambda: untimed(untimed_view)),
        again("py-dynamic", lambda: dynamic(dynamic_view, found)),
        again("py-dynamic-list", lambda: dynamic_list(found), LIST_PAUSE),
    )


main()
