"""`pykube-ng`: a watch that begins with the state each time, and a list."""

import os

import pykube
from telling import LIST_PAUSE, View, again, run, tell

api = pykube.HTTPClient(pykube.KubeConfig.from_file(os.environ["KUBECONFIG"]), timeout=60)
Attempt = pykube.object_factory(api, "nodus.dev/v1", "Attempt")


def watching(view: View) -> None:
    view.forgets()
    for event in Attempt.objects(api).filter(namespace=pykube.all).watch():
        view.took(event.type, event.object.obj)


def listing() -> None:
    names = [one.name for one in Attempt.objects(api).filter(namespace="default")]
    tell("pykube-list", names=names)
    tell("pykube-list", ready=True)


def main() -> None:
    view = View("pykube")
    run(again("pykube", lambda: watching(view)), again("pykube-list", listing, LIST_PAUSE))


main()
