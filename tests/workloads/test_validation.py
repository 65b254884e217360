"""A checked manifest, or one sentence that names the document, the field and what to write."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.workloads.manifests import MINIMUM, a_job, with_spec

from nodus_api.kernel.naming import is_owner_name, owner_label
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.metav1 import labels
from nodus_api.metav1.errors import BadRequest
from nodus_api.workloads import ManifestError, parse_manifests


def refusal_of(text: str) -> ManifestError:
    with pytest.raises(ManifestError) as refused:
        parse_manifests(text)
    return refused.value


def test_the_minimum_job() -> None:  # SC-805
    (manifest,) = parse_manifests(MINIMUM)

    assert (manifest.kind, manifest.name, manifest.project) == (OwnerKind.JOB, "train", "example")
    assert manifest.spec["template"]["command"] == ["python", "train.py"]
    assert manifest.spec["limits"] == {"startDeadlineSeconds": 3600}
    assert manifest.workload_spec == WorkloadSpec.from_json(OwnerKind.JOB, manifest.spec)


def test_yaml_and_json_say_the_same() -> None:  # SC-801
    assert parse_manifests(json.dumps(yaml.safe_load(MINIMUM))) == parse_manifests(MINIMUM)


def test_a_document_without_a_namespace_is_of_the_callers_project() -> None:
    (manifest,) = parse_manifests(a_job(), project="vision")

    assert manifest.project == "vision"
    assert parse_manifests(a_job())[0].project == "default"


def test_every_field_of_a_job() -> None:  # SC-805
    spec = """\
resources: {accelerators: [h100, h200], count: 8, acceleratorMemoryGiB: 80, vcpus: 7.5,
  memoryGiB: "64", diskGiB: 100, arch: amd64}
placement: {profile: Speed, regions: [eu, us], interruptible: Require, hedge: Auto,
  offerings: [h100-sxm-80g-x8-eu]}
checkpoint: {restartable: true, intervalSeconds: 600, costSeconds: 0}
restart: {maxRetries: 2, maxReplacements: 7,
  rules: [{exitCodes: [42], reasons: [OutOfMemory], action: FailJob}]}
limits: {maxCostUSD: 100.000001, maxRateUSDPerHour: 30.50, maxDurationSeconds: 60,
  startDeadlineSeconds: 60}
estimate: {hours: 0.1}
stopGraceSeconds: 0
autoResume: true
completions: 4
parallelism: 4
gang: {name: ranks}
"""

    spec_of = parse_manifests(a_job(spec))[0].spec

    assert spec_of["resources"] == {
        "accelerators": ["h100", "h200"],
        "count": 8,
        "acceleratorMemoryGiB": "80",
        "vcpus": "7.5",
        "memoryGiB": "64",
        "diskGiB": "100",
        "arch": "amd64",
    }
    assert spec_of["limits"]["maxCostUSD"] == "100.000001"
    assert spec_of["limits"]["maxRateUSDPerHour"] == "30.5"
    assert spec_of["estimate"] == {"hours": "0.1"}
    assert spec_of["gang"] == {"name": "ranks"}
    assert spec_of["stopGraceSeconds"] == 0


@pytest.mark.parametrize(
    ("written", "canonical"),
    [("true", {"name": "workers"}), ("{}", {"name": "workers"}), ("false", False), ("", False)],
)
def test_a_gang_is_a_word_or_a_block(written: str, canonical: object) -> None:  # SC-130
    assert parse_manifests(a_job(f"gang: {written}"))[0].spec["gang"] == canonical


@pytest.mark.parametrize("completions", ["", "completions: 3\n", "completions: null\n"])
def test_the_size_of_a_gang_is_its_completions(completions: str) -> None:  # SC-130
    spec = parse_manifests(a_job(f"{completions}gang: {{size: 3}}"))[0].spec

    assert (spec["completions"], spec["parallelism"]) == (3, 3)
    assert spec["gang"] == {"name": "workers"}


def test_null_is_absent() -> None:
    nulls = a_job("resources:\nlimits: {maxCostUSD: null}\ncheckpoint: {intervalSeconds: auto}")

    assert parse_manifests(nulls) == parse_manifests(a_job())


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (OwnerKind.SANDBOX, "idleTimeoutSeconds: 600\ncheckpoint: {intervalSeconds: 60}"),
        (OwnerKind.WORKSPACE, "idleTimeoutSeconds: 600\nrestart: {maxReplacements: 1}"),
        (OwnerKind.FUNCTION, "workers: 0"),
        (OwnerKind.AGENT, "workers: 3\nrestart: {maxReplacements: 1}"),
        (OwnerKind.BUILD, "resources: {vcpus: 8}"),
        (OwnerKind.IMPORT, "restart: {maxReplacements: 1}"),
    ],
)
def test_the_other_kinds(kind: OwnerKind, spec: str) -> None:  # SC-101, SC-807
    (manifest,) = parse_manifests(a_job(spec, kind=kind))

    assert manifest.kind is kind
    assert WorkloadSpec.from_json(kind, manifest.spec).to_json() == manifest.spec


def test_an_image_alone_runs_where_the_kind_allows() -> None:
    sandbox = with_spec("{template: {image: python}}").replace("Job", "Sandbox")

    assert parse_manifests(sandbox)[0].spec["template"] == {
        "image": "python",
        "command": [],
        "env": {},
    }


REGIONS = "us, ca, eu, uk, in, jp, sg, au, me, sa, af or other"

BAD_FIELDS = [
    ("resorces: {}", "spec.resorces is not a known field: did you mean resources?"),
    ("maxretries: 1", "spec.maxretries is not a known field: write one of template, resources"),
    (
        "maxRetries: 1",
        "spec.maxRetries is not a known field: did you mean spec.restart.maxRetries?",
    ),
    ("image: x", "spec.image is not a known field: did you mean spec.template.image?"),
    (
        "workers: 1",
        "spec.workers is not a known field: write one of template, resources, placement",
    ),
    (
        "resources: {acelerators: [h100]}",
        "spec.resources.acelerators is not a known field: did you mean accelerators?",
    ),
    (
        "restart: {rules: [{exitcodes: [1], action: Retry}]}",
        "spec.restart.rules[0].exitcodes is not a known field: did you mean exitCodes?",
    ),
    ("completions: three", "spec.completions must be a whole number, not 'three'"),
    ("completions: 1.5", "spec.completions must be a whole number, not 1.5"),
    ("completions: true", "spec.completions must be a whole number, not true"),
    ("completions: 0", "spec.completions must be at least 1, not 0"),
    ("completions: 100001", "spec.completions must be at most 100000, not 100001"),
    (f"completions: 0x{'f' * 5000}", "must be at most 100000, not a number of thousands of digits"),
    ("autoResume: 1", "spec.autoResume must be true or false, not 1"),
    ("resources: []", "spec.resources must be a mapping, not an empty list"),
    ("restart: {rules: {a: 1}}", "spec.restart.rules must be a list, not a mapping"),
    ("resources: {accelerators: h100}", "spec.resources.accelerators must be a list, not 'h100'"),
    (
        "resources: {accelerators: [H 100]}",
        "spec.resources.accelerators[0] must be a name of lower-case letters, digits, '-' and '.',"
        " not 'H 100'",
    ),
    ("resources: {count: 2}", "spec.resources has count 2 without accelerators: write acceler"),
    ("resources: {accelerators: [a], count: 0}", "spec.resources asks for accelerators with coun"),
    (
        "resources: {acceleratorMemoryGiB: 80}",
        "spec.resources has acceleratorMemoryGiB without accelerators: write accelerators",
    ),
    ("resources: {arch: x86_64}", "spec.resources.arch must be amd64 or arm64, not 'x86_64'"),
    ("gang: 3", "spec.gang must be true, false, {size: N} or {name: NAME}, not 3"),
    ("gang: {size: 0}", "spec.gang.size must be"),
    ("gang: {size: many}", "spec.gang.size must be a whole number"),
    (
        "gang: {size: 3}\ncompletions: 4",
        "spec has completions 4 and a gang of 3: a gang is all of them, so leave one out",
    ),
    ("gang: {name: Ranks}", "spec.gang.name must be a DNS label: 1 to 63 characters of a-z"),
    (
        "gang: true\ncompletions: 4\nparallelism: 2",
        "spec has parallelism 2, which splits a gang of 4: leave parallelism out, or gang",
    ),
    ("restart: {rules: [{action: Retry}]}", "spec.restart.rules[0] matches nothing: write exitC"),
    ("restart: {rules: [{exitCodes: [1]}]}", "rules[0].action is missing: write action: Retry"),
    (
        "restart: {rules: [{exitCodes: [0], action: Retry}]}",
        "spec.restart.rules[0].exitCodes[0] must be at least 1, not 0",
    ),
    (
        "restart: {rules: [{reasons: [Preempted], action: Retry}]}",
        "spec.restart.rules[0].reasons[0] must be CustomerExit, OutOfMemory, ImagePullFailed or "
        "StartFailed, not 'Preempted'",
    ),
    ("limits: {maxCostUSD: five}", "maxCostUSD must be a number such as 2.5, not 'five'"),
    ("limits: {maxCostUSD: '1_0'}", "maxCostUSD must be a number such as 2.5, not '1_0'"),
    ("limits: {maxCostUSD: true}", "maxCostUSD must be a number such as 2.5, not True"),
    ("limits: {maxCostUSD: [1]}", "maxCostUSD must be a number such as 2.5, not [1]"),
    ("limits: {maxCostUSD: '٣'}", "maxCostUSD must be a number such as 2.5, not '٣'"),
    ("limits: {maxCostUSD: -1}", "maxCostUSD must be above 0, not -1"),
    ("limits: {maxCostUSD: .inf}", "maxCostUSD must be above 0, not inf"),
    ("limits: {maxCostUSD: 0.1234567}", "maxCostUSD must have at most 6 decimals, not 0.1234567"),
    ("limits: {maxCostUSD: 1000000000000}", "maxCostUSD must be below 10 to the 12th, not 1000"),
    ("checkpoint: {intervalSeconds: often}", "must be auto or a number of seconds, not 'often'"),
    ("checkpoint: {intervalSeconds: 0}", "spec.checkpoint.intervalSeconds must be at least 1"),
    ("placement: {profile: fast}", "must be Balanced, Cost or Speed, not 'fast'"),
    ("placement: {regions: [eu, mars]}", f"spec.placement.regions[1] must be {REGIONS}, not 'mar"),
]


@pytest.mark.parametrize(("spec", "sentence"), BAD_FIELDS)
def test_a_bad_field_gets_one_sentence(spec: str, sentence: str) -> None:
    refused = refusal_of(a_job(spec))

    assert refused.sentence.startswith("Job train: spec")
    assert sentence in refused.sentence
    assert refused.field is not None
    assert "\n" not in refused.sentence


BAD_TEMPLATES = [
    ("{}", "spec.template is missing: write template: {image: python:3.12, command: [python"),
    ("{template: {image: x}}", "spec.template.command is missing: write command: [python, train"),
    ("{template: {comand: [a]}}", "spec.template.comand is not a known field: did you mean comma"),
    (
        "{template: {command: python train.py --name 'a b' 3}}",
        "spec.template.command must be a list, one word an item: write [python, train.py, --name, "
        '"a b", "3"]',
    ),
    (
        '{template: {command: "echo \'a"}}',
        'spec.template.command must be a list, one word an item: write ["echo \'a"]',
    ),
    ("{template: {command: 7}}", "spec.template.command must be a list, not 7"),
    ("{template: {command: []}}", "command must be a list with at least one item, not an empty"),
    ("{template: {command: [sleep, 30]}}", 'command[1] must be a string, not 30: write "30"'),
    ("{template: {command: [a, true]}}", 'command[1] must be a string, not true: write "true"'),
    ("{template: {command: [a, 2026-01-01]}}", "command[1] must be a string, not 2026-01-01"),
    (
        "{template: {command: [a], env: {PORT: 80}}}",
        'env.PORT must be a string, not 80: write "80"',
    ),
    ("{template: {command: [a], env: [A]}}", "spec.template.env must be a mapping, not a list"),
    ("{template: {command: [a], env: {1A: x}}}", "env.1A has the name '1A': write letters, digits"),
    (
        "{template: {command: [a], env: {NODUS_SLOT: x}}}",
        "NODUS_SLOT: names that start with NODUS_",
    ),
    ("{template: {command: [a], workingDir: ''}}", "must be a string that is not empty, not ''"),
    ('{template: {command: ["a\\0b"]}}', "spec.template.command[0] holds a character that is no t"),
    (
        "{template: {command: [a], 1: b}}",
        'spec.template has the key 1, which is no string: write "1"',
    ),
    ("[a]", "spec must be a mapping, not a list"),
    ("[" * 30 + "]" * 30, "is nested more than 20 deep: write it flat"),
    (
        f"{{template: {{image: {'x' * 5000}, command: [a]}}}}",
        "spec.template.image must be a string no longer than 4096, not 'xxxxxxxxxxxxxxxx",
    ),
]


@pytest.mark.parametrize(("spec", "sentence"), BAD_TEMPLATES)
def test_a_bad_template_gets_one_sentence(spec: str, sentence: str) -> None:
    refused = refusal_of(with_spec(spec))

    assert refused.sentence.startswith("Job train: ")
    assert sentence in refused.sentence


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("v1\n", "v2\n", "Job train: apiVersion must be nodus.dev/v1, not 'nodus.dev/v2'"),
        ("apiVersion: nodus.dev/v1\n", "", "apiVersion is missing: write apiVersion: nodus.dev/v1"),
        ("kind: Job\n", "", "train: kind is missing: write kind: Job"),
        ("Job", "job", "job train: kind 'job' is not known: did you mean Job?"),
        ("Job", "Pod", "kind 'Pod' is not known: write Job, Sandbox, Workspace, Function, Agent, "),
        ("Job", "[Job]", "train: kind a list is not known: write Job"),
        ("spec:", "sepc:", "Job train: sepc is not a known field: did you mean spec?"),
        (
            "spec:",
            "image: x\nspec:",
            "image is not a known field: did you mean spec.template.image?",
        ),
        ("spec:", "name: x\nspec:", "name is not a known field: did you mean metadata.name?"),
        (
            "spec:",
            "zzz: x\nspec:",
            "zzz is not a known field: write apiVersion, kind, metadata, sp",
        ),
        ("metadata: {name: train}\n", "", "Job: metadata is missing: write it"),
        ("{name: train}", "{}", "Job: metadata.name is missing: write name: train"),
        ("{name: train}", "[a]", "Job: metadata must be a mapping, not a list"),
        (
            "{name: train}",
            "{nmae: train}",
            "metadata.nmae is not a known field: did you mean name?",
        ),
        ("{name: train}", "{name: 1}", 'Job: metadata.name must be a string, not 1: write "1"'),
        ("{name: train}", "{name: a, namespace: B}", "metadata.namespace must be a DNS label"),
        ("name: train", "name: Train_1", "Job Train_1: metadata.name must be a DNS label: 1 to 63"),
        ("name: train", "name: a-", "Job a-: metadata.name must be a DNS label"),
        ("name: train", f"name: {'a' * 64}", "metadata.name must be a DNS label"),
    ],
)
def test_a_bad_head_gets_one_sentence(old: str, new: str, sentence: str) -> None:  # LW-210
    refused = refusal_of(a_job().replace(old, new))

    assert sentence in refused.sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hello", "the manifest: must be a mapping with apiVersion, kind, metadata, spec, not 'he"),
        ("- a\n---\n- b", "document 1: must be a mapping with apiVersion, kind, metadata, spec"),
        ("1: 2", 'the manifest: the document has the key 1, which is no string: write "1"'),
        ('{"kind": "\\ud800"}', "kind holds a character that is no text"),
    ],
)
def test_what_is_no_document_gets_one_sentence(text: str, sentence: str) -> None:
    assert sentence in refusal_of(text).sentence


def test_the_longest_name_fits() -> None:  # SC-102, SC-103, LW-096, LW-210
    (manifest,) = parse_manifests(a_job(name="a" * 63))

    assert len(f"{manifest.name}-{'9' * 9}-e{2**31 - 1}-abcde") <= 253


@pytest.mark.parametrize("kind", list(OwnerKind))
def test_no_owner_has_a_name_that_its_label_cannot_carry(kind: OwnerKind) -> None:  # LW-096
    """Of 64 characters no owner is made, whatever its kind, as no selector could name it."""
    longest, longer = "a" * 63, "a" * 64

    assert owner_label(kind, longest) == (kind.label, longest)
    assert labels.parse(f"{kind.label}={longest}").matches({kind.label: longest})
    assert is_owner_name(longest)
    assert not is_owner_name(longer)
    with pytest.raises(BadRequest, match="must be no more than 63 bytes"):
        labels.parse(f"{kind.label}={longer}")
    refused = refusal_of(a_job(name=longer, kind=kind.value))
    assert refused.field == "metadata.name"
    assert "metadata.name must be a DNS label: 1 to 63 characters" in refused.sentence


def test_two_documents_of_one_kind_and_name() -> None:
    refused = refusal_of("---\n".join([a_job(), a_job(name="other"), a_job()]))

    assert refused.sentence == (
        "document 3 (Job train): document 1 is the same Job in project default: "
        "give one of them another name"
    )
    assert (refused.document, refused.field) == (3, "metadata.name")


def test_one_name_may_stand_in_two_kinds_and_two_projects() -> None:
    manifests = parse_manifests("---\n".join([MINIMUM, a_job(), a_job(kind="Sandbox")]))

    assert [(one.kind, one.project) for one in manifests] == [
        (OwnerKind.JOB, "example"),
        (OwnerKind.JOB, "default"),
        (OwnerKind.SANDBOX, "default"),
    ]


def test_the_bad_document_of_several_is_named() -> None:
    refused = refusal_of(a_job() + "---\n" + a_job("gang: 1", name="second"))

    assert refused.sentence.startswith("document 2 (Job second): spec.gang must be")


@pytest.mark.parametrize("kind", [OwnerKind.BUILD, OwnerKind.IMPORT])
def test_builds_and_imports_ask_for_no_accelerator(kind: OwnerKind) -> None:  # SC-209
    refused = refusal_of(a_job("resources: {accelerators: [h100]}", kind=kind))

    assert "spec.resources asks for accelerators, but this kind runs without" in refused.sentence


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("Sandbox", "completions: 2", "completions"),
        ("Build", "restart: {maxRetries: 1}", "restart.maxRetries"),
        ("Workspace", "checkpoint: {restartable: true}", "checkpoint.restartable"),
        ("Job", "idleTimeoutSeconds: 1", "idleTimeoutSeconds"),
        ("Agent", "gang: true", "gang"),
    ],
)
def test_a_field_of_another_kind_is_not_known(kind: str, spec: str, field: str) -> None:  # SC-101
    refused = refusal_of(a_job(spec, kind=kind))

    assert refused.field == f"spec.{field}"
    assert "is not a known field" in refused.sentence


def test_a_template_of_nothing_runs_nothing() -> None:
    refused = refusal_of(with_spec("{template: {env: {A: b}}}").replace("Job", "Sandbox"))

    assert refused.sentence == (
        "Sandbox train: spec.template says nothing to run: write command, image or both"
    )


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.dates()
)
anything = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "template", "command", "gang", "x"]), inner)
    ),
    max_leaves=8,
)


@given(metadata=anything, spec=anything, kind=st.sampled_from(OwnerKind), more=anything)
def test_whatever_stands_there_gets_a_spec_or_one_sentence(
    metadata: Any, spec: Any, kind: OwnerKind, more: Any
) -> None:
    text = yaml.safe_dump(
        {
            "apiVersion": "nodus.dev/v1",
            "kind": kind.value,
            "metadata": metadata if isinstance(metadata, dict) else {"name": "a"},
            "spec": {"template": {"command": ["a"]}, "limits": more}
            | (spec if isinstance(spec, dict) else {}),
        }
    )

    sentence = None
    manifests = []
    try:
        manifests = parse_manifests(text)
    except ManifestError as refused:
        sentence = refused.sentence

    assert sentence is None or (sentence and "\n" not in sentence)
    assert [one.workload_spec.to_json() for one in manifests] == [one.spec for one in manifests]
    assert (sentence is None) == bool(manifests)
