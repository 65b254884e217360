"""The price lists that ship with the package, so that a first run needs no network (SC-207)."""

from importlib.resources import files

SAMPLE_CLOUDS = ("aws", "lambda", "nebius")


def sample_prices(cloud: str) -> str:
    """Return the sample of a cloud's price list, in SkyPilot's format."""
    return _read(f"{cloud}.csv")


def sample_forms() -> str:
    """Return the mapping file of the clouds in the sample."""
    return _read("forms.yaml")


def _read(name: str) -> str:
    return (files(__package__) / "sample" / name).read_text(encoding="utf-8")
