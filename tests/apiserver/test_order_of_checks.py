"""Of several things that are wrong the first in the order of LW-021 is told."""

import re

import orjson
import pytest
from tests.apiserver.conftest import N, Replica

OTHER = "/apis/nodus.dev/v1/namespaces/other/attempts"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BAD_VERSION = "resourceVersion=abc"
BAD_FIELD = f"fieldSelector=spec.foo%3D1&{BAD_VERSION}"
BAD_OPTIONS = f"sendInitialEvents=true&resourceVersionMatch=Foo&{BAD_FIELD}"
BAD_QUERY = f"limit=abc&{BAD_OPTIONS}"


@pytest.mark.parametrize("watch", ["", "watch=1&"])
@pytest.mark.parametrize(
    ("who", "method", "target", "accept", "status", "said"),
    [
        ("stranger", "POST", f"{OTHER}?{BAD_QUERY}", PROTOBUF, 401, "Unauthorized"),
        ("alice", "POST", f"{OTHER}?{BAD_QUERY}", PROTOBUF, 405, "create is not supported"),
        ("alice", "GET", f"{OTHER}?{BAD_QUERY}", PROTOBUF, 403, "attempts.nodus.dev is forbidden"),
        ("alice", "GET", f"{N}?{BAD_QUERY}", PROTOBUF, 406, "only the following media types"),
        ("alice", "GET", f"{N}?{BAD_QUERY}", "*/*", 400, "strconv.ParseInt: parsing"),
        ("alice", "GET", f"{N}?{BAD_OPTIONS}", "*/*", 422, 'ListOptions.meta.k8s.io "" is invalid'),
        ("alice", "GET", f"{N}?{BAD_FIELD}", "*/*", 400, "field label not supported: spec.foo"),
        ("alice", "GET", f"{N}?{BAD_VERSION}", "*/*", 400, "invalid resource version: "),
    ],
)
async def test_the_first_thing_wrong_is_told(
    replica: Replica,
    who: str,
    method: str,
    target: str,
    accept: str,
    status: int,
    said: str,
    watch: str,
) -> None:  # LW-021, LW-185, LW-187, LW-190, LW-195
    # the match of options is judged, so that the next step is the one at fault
    path, _, query = target.partition("?")
    if watch and query in (BAD_FIELD, BAD_VERSION):
        query += "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    got = await getattr(replica, who).request(
        method, f"{path}?{watch}{query}", headers={"accept": accept}
    )

    assert (got.status, orjson.loads(got.body)["code"]) == (status, status)
    assert orjson.loads(got.body)["message"].startswith(said)


async def test_a_project_that_is_not_seen_has_no_paths_of_its_own(
    replica: Replica,
) -> None:  # LW-021: the route is judged before the right
    got = await replica.alice.get(f"{OTHER}/scan-0-e1/log")
    assert got.status == 404


@pytest.mark.parametrize(
    ("target", "kind", "status"),
    [
        (f"{N}?limit=abc&includeObject=X", "Table", 400),
        (f"{N}/nope?includeObject=X", "Table", 404),
        (f"{N}/train-0-e1?includeObject=X", "Table", 400),
        (f"{N}?limit=abc", "PartialObjectMetadata", 400),
        (f"{N}?continue=xx", "PartialObjectMetadata", 400),
        (N, "PartialObjectMetadata", 406),
        (f"{N}/nope", "PartialObjectMetadataList", 404),
        (f"{N}/train-0-e1", "PartialObjectMetadataList", 406),
    ],
)
async def test_a_form_that_does_not_fit_is_told_last(
    replica: Replica, target: str, kind: str, status: int
) -> None:  # LW-053, LW-254: kube-apiserver finds out when it writes the answer
    accept = f"application/json;as={kind};v=v1;g=meta.k8s.io"

    assert (await replica.alice.get(target, accept=accept)).status == status


@pytest.mark.parametrize(
    ("target", "asked", "right"),
    [
        (N, "PartialObjectMetadata", "PartialObjectMetadataList"),
        (f"{N}/train-0-e1", "PartialObjectMetadataList", "PartialObjectMetadata"),
    ],
)
async def test_a_form_that_does_not_fit_is_told_which_does(
    replica: Replica, target: str, asked: str, right: str
) -> None:  # LW-053, LW-202: what was asked for is metadata, so that is what the fix gives
    accept = "application/json;as={};v=v1;g=meta.k8s.io"
    refused = await replica.alice.get(target, accept=accept.format(asked))
    [form] = re.findall("`Accept: (.*)`", orjson.loads(refused.body)["fix"])
    got = await replica.alice.get(target, accept=form)

    assert (refused.status, got.status) == (406, 200)
    assert orjson.loads(got.body)["kind"] == right
