"""`nodus project quota` and `nodus offerings disable|enable|restrict` (SC-310)."""

import json

import pytest
from tests.cli.conftest import Nodus


def test_quotas_are_set_shown_and_lifted(nodus: Nodus, clean_database: str) -> None:
    at = ("--database-url", clean_database)
    assert nodus("project", "quota", "default", *at).stdout.startswith("None")
    done = nodus("project", "quota", "default", "h100=8", "cpu=20", "-o", "json", *at)
    assert json.loads(done.stdout) == [
        {"accelerator": "cpu", "quota": 20, "used": 0, "left": 20},
        {"accelerator": "h100", "quota": 8, "used": 0, "left": 8},
    ]
    text = nodus("project", "quota", "default", "cpu=none", *at).stdout
    assert text == "ACCELERATOR  QUOTA  USED  LEFT\nh100             8     0     8\n"


@pytest.mark.parametrize(
    "quota", ["h100", "=3", "h100=-1", "h100=1.5", "h100=many", "H100=1", "h100=\u0663", "a b=1"]
)
def test_what_is_no_quota_is_refused(nodus: Nodus, clean_database: str, quota: str) -> None:
    at = ("--database-url", clean_database)
    done = nodus("project", "quota", "default", *at, "--", "cpu=1", quota)
    assert (done.exit_code, done.stdout) == (2, "")
    assert repr(quota) in done.stderr
    assert nodus("project", "quota", "default", "-o", "json", *at).stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["project", "quota", "nowhere", "h100=1"], "There is no project 'nowhere'"),
        (["project", "quota", "nowhere"], "There is no project 'nowhere'"),
        (["offerings", "disable", "h100-none"], "There is no class 'h100-none'"),
        (["offerings", "enable", "h100-none"], "There is no class 'h100-none'"),
        (["offerings", "restrict", "h100-none", "--to", "default"], "no class 'h100-none'"),
        (["offerings", "restrict", "h100-none"], "--to-all"),
        (["offerings", "restrict", "h100-none", "--to-all", "--to", "default"], "--to-all"),
    ],
)
def test_what_is_not_there_is_refused(
    nodus: Nodus, clean_database: str, arguments: list[str], said: str
) -> None:
    done = nodus(*arguments, "--database-url", clean_database)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_class_is_drained_and_restricted(nodus: Nodus, clean_database: str) -> None:
    at = ("--database-url", clean_database)
    assert nodus("offerings", "import", "--sample", "--cloud", "nebius", *at).exit_code == 0
    name = "h100-sxm-80g-x1-eu"

    def shown() -> tuple[str, list[str] | None]:
        items = json.loads(nodus("offerings", "list", "-o", "json", *at).stdout)["items"]
        (one,) = [one for one in items if one["name"] == name]
        return one["state"], one["openTo"]

    assert shown() == ("on offer", None)
    nodus("offerings", "disable", name, *at)
    nodus("offerings", "restrict", name, "--to", "default", *at)
    assert shown() == ("disabled", ["default"])
    refused = nodus("offerings", "restrict", name, "--to", "default", "--to", "nowhere", *at)
    assert "There is no project 'nowhere'" in refused.stderr
    nodus("offerings", "enable", name, *at)
    nodus("offerings", "restrict", name, "--to-all", *at)
    assert shown() == ("on offer", None)
