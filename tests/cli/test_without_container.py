"""What submit and estimate say of images that nobody pulls (SC-713)."""

from typing import Any

import pytest
import yaml
from tests.cli.conftest import Nodus
from tests.cli.live import Up

from nodus_api.cli.without_container import images_note
from nodus_api.workloads import Manifest, parse_manifests

IMAGE = "example.com/not/there:1"


def a_job(name: str, *, kind: str = "Job", **template: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "nodus.dev/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"template": template},
        }
    )


def jobs(*documents: str) -> list[Manifest]:
    return list(parse_manifests("---\n".join(documents), project="default"))


@pytest.mark.parametrize("command", ["submit", "estimate"])
def test_an_image_that_is_not_used_is_named(nodus: Nodus, up: Up, command: str) -> None:
    arguments = (command, "-f", "-", "--data-dir", up.root)
    said = nodus(*arguments, stdin=a_job(f"image-{command}", image=IMAGE, command=["true"]))
    assert (said.exit_code, said.stderr) == (
        0,
        "Note: programs run on this machine without a container, so template.image is not used.\n",
    )
    plain = nodus(*arguments, stdin=a_job(f"plain-{command}", command=["true"]))
    assert (plain.exit_code, plain.stderr) == (0, "")


def test_an_image_alone_starts_nothing() -> None:
    assert images_note(jobs(a_job("bare", kind="Sandbox", image=IMAGE)), "local") == (
        "Note: programs run on this machine without a container, so template.image is not used;"
        " without template.command it will not start."
    )


def test_of_several_those_with_an_image_are_named() -> None:
    several = jobs(
        a_job("one", image=IMAGE, command=["true"]),
        a_job("two", kind="Sandbox", image=IMAGE),
        a_job("plain", command=["true"]),
    )
    assert images_note(several, "local") == (
        "Note: programs run on this machine without a container, so template.image of job/one,"
        " sandbox/two is not used; without template.command sandbox/two will not start."
    )
    many = jobs(*(a_job(f"j{n}", image=IMAGE, command=["true"]) for n in range(7)))
    assert "job/j0, job/j1, job/j2, job/j3, job/j4 and 2 more is" in (
        images_note(many, "local") or ""
    )


def test_where_images_are_run_nothing_is_said() -> None:
    assert images_note(jobs(a_job("one", image=IMAGE, command=["true"])), "kubernetes") is None
    assert images_note(jobs(a_job("one", command=["true"])), "local") is None
