"""Intake: what may be asked for, checked, becomes a command for the loop.

Decision 1: a manifest is stored whole. The spec that goes into `commands` is canonical,
every default stated, so that "an equal spec" is plain equality and a later change of a
default does not change what was submitted. It costs about 700 bytes a workload.
"""

from nodus_api.workloads.documents import ManifestError
from nodus_api.workloads.intake import (
    KeyReused,
    Outcome,
    RequestRefused,
    UnknownProject,
    Verb,
    outcome,
    request,
    submit,
    wait_for_outcome,
    wake,
)
from nodus_api.workloads.validation import Manifest, parse_manifests

__all__ = [
    "KeyReused",
    "Manifest",
    "ManifestError",
    "Outcome",
    "RequestRefused",
    "UnknownProject",
    "Verb",
    "outcome",
    "parse_manifests",
    "request",
    "submit",
    "wait_for_outcome",
    "wake",
]
