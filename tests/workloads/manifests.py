"""Manifests that the intake tests share."""

MINIMUM = """\
apiVersion: nodus.dev/v1
kind: Job
metadata: {name: train, namespace: example}
spec:
  template: {image: python:3.12, command: [python, train.py]}
  resources: {accelerators: [h100], count: 1}
"""
"""The minimum Job of SC-805, as it stands there."""


def a_job(spec: str = "", *, name: str = "train", kind: str = "Job") -> str:
    """Return a manifest with further lines in its spec."""
    lines = "".join(f"  {line}\n" for line in spec.splitlines())
    return (
        f"apiVersion: nodus.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        f"spec:\n  template: {{command: [python, train.py]}}\n{lines}"
    )


def with_spec(spec: str) -> str:
    """Return a Job whose whole spec is given, in flow style."""
    return f"apiVersion: nodus.dev/v1\nkind: Job\nmetadata: {{name: train}}\nspec: {spec}\n"
