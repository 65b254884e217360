"""What both servers hold: some dozens of Attempts in every phase, with a history behind them."""

import base64
from urllib.parse import quote

import httpx
import orjson
from tests.apiserver.conftest import A, N
from tests.attempts.examples import EXAMPLES
from tests.differential.document_requests import DOCUMENT, INDEX, SWAGGER
from tests.differential.pair import Pair, Side
from tests.differential.requests import DISCOVERY

from nodus_api.metav1.continue_token import Continuation, Seal, encode

GROUP_DOCUMENT = DOCUMENT.removeprefix(f"{INDEX}/")
PROJECTS = {"default": True, "example": True, "other": False, "sizes": False, "empty": True,
            "large": False}  # fmt: skip
"""The projects, and whether alice may see each."""


async def fill(pair: Pair) -> None:
    """Create, change and delete, the same in both."""
    for number, example in enumerate(EXAMPLES):
        await pair.create("example", f"train-{number}-e1", example, tier=f"t{number % 3}")
    for number in range(6):
        await pair.create("other", f"scan-{number}-e1", "running", size=str(number * 2))
    for number, size in enumerate(("4", "6", "abc", "", "007")):
        await pair.create("sizes", f"sized-{number}-e1", "succeeded", x=size)
    for name in ("a.b-e1", "a-b-e1", "a-e1"):
        await pair.create("default", name, "queued")
    await pair.change("example", "train-0-e1", "acquiring", tier="t0")
    await pair.change("other", "scan-0-e1", "succeeded", size="0")
    await pair.create("example", "gone-0-e1", "running")
    await pair.delete("example", "gone-0-e1")
    await pair.change("other", "scan-1-e1", "failed-lost")
    await pair.caught_up()
    for side, http in zip(pair.sides, (pair.kube_server.http, pair.our_server.http), strict=True):
        await _tokens(side, http)


async def enlarge(pair: Pair) -> None:
    """Add what is asked for with compression: 128 KiB and a little more, by one annotation."""
    await pair.create("large", "big-e1", "queued", note="some words " * 12_000)
    await pair.create("large", "small-e1", "queued")
    await pair.caught_up()


async def reduce(pair: Pair) -> None:
    """Take that away, so that no other answer carries it."""
    for name in ("big-e1", "small-e1"):
        await pair.delete("large", name)
    await pair.caught_up()


async def documented(pair: Pair) -> None:
    """Keep hash and tags of the OpenAPI documents, once kube-apiserver has published ours."""
    for side, http in zip(pair.sides, (pair.kube_server.http, pair.our_server.http), strict=True):
        while True:
            index = (await http.get(INDEX)).json()["paths"]
            if GROUP_DOCUMENT in index:
                break
        side.values["hash"] = index[GROUP_DOCUMENT]["serverRelativeURL"].partition("?hash=")[2]
        side.values["tag"] = f'"{side.values["hash"]}"'
        while True:
            got = await http.get(SWAGGER, headers={"Accept": "application/json"})
            if f"/{GROUP_DOCUMENT}/" in got.text:
                break
        side.values["swaggertag"] = got.headers["etag"]


async def _tokens(side: Side, http: httpx.AsyncClient) -> None:
    """Keep tokens of a server: of pages, of a state that is lost, and the one that follows that."""
    for name, target in {
        "page": f"{N}?limit=3",
        "lastpage": f"{N}?limit=10",
        "allpage": f"{A}?limit=4",
    }.items():
        got = await http.get(target)
        side.values[name] = quote(got.json()["metadata"]["continue"])
    old = Continuation(rev=1, name="train-1-e1")
    if side.name == "kube":
        made = (
            base64.urlsafe_b64encode(
                orjson.dumps({"v": "meta.k8s.io/v1", "rv": old.rev, "start": f"/{old.key}\0"})
            )
            .decode()
            .rstrip("=")
        )
    else:
        made = encode(old, Seal(key=b"k" * 32, path=N))
    side.values["oldpage"] = quote(made)
    refused = await http.get(f"{N}?limit=3&continue={made}")
    assert refused.status_code == 410, refused.text
    tagged = await http.get("/apis", headers={"Accept": DISCOVERY})
    side.values["etag"] = tagged.headers["etag"]
    side.values["onward"] = quote(refused.json()["metadata"]["continue"])
