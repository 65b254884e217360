"""What is said of `template.image` where programs run without a container (SC-713)."""

from collections.abc import Sequence

import click

from nodus_api.workloads import Manifest

_WITHOUT = ("local",)
"""The suppliers that have no container engine."""

_MOST_NAMES = 5


def note_images(manifests: Sequence[Manifest], supplier: str) -> None:
    """Say on stderr, in one line, that the images of the manifests are not used; if so."""
    sentence = images_note(manifests, supplier)
    if sentence is not None:
        click.echo(sentence, err=True)


def images_note(manifests: Sequence[Manifest], supplier: str) -> str | None:
    """Return the sentence about images that are not used, None where there is nothing to say."""
    named = [one for one in manifests if one.workload_spec.template.image is not None]
    if supplier not in _WITHOUT or not named:
        return None
    whose = "template.image" if len(manifests) == 1 else f"template.image of {_listed(named)}"
    note = f"Note: programs run on this machine without a container, so {whose} is not used"
    bare = [one for one in named if not one.workload_spec.template.command]
    if not bare:
        return f"{note}."
    who = "it" if len(manifests) == 1 else _listed(bare)
    return f"{note}; without template.command {who} will not start."


def _listed(manifests: Sequence[Manifest]) -> str:
    names = [f"{one.kind.lower()}/{one.name}" for one in manifests]
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
