"""Names of Attempts and owners: SC-102, SC-103."""

import hashlib
import re
from base64 import b32encode
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.kernel.naming import attempt_name, is_owner_name, owner_label
from nodus_api.kernel.vocabulary import OwnerKind

OWNER_UID = UUID("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11")


def test_a_name_says_owner_slot_and_epoch() -> None:  # SC-103
    canonical = b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    h = b32encode(hashlib.sha256(canonical).digest()).decode()[:5].lower()

    assert attempt_name("train", "0", 12, OWNER_UID) == f"train-0-e12-{h}"


def test_owners_of_one_name_never_share_an_attempts_name() -> None:
    other = UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12")

    assert attempt_name("train", "0", 1, OWNER_UID) != attempt_name("train", "0", 1, other)


OWNERS = st.builds(  # a few characters again and again: from_regex takes 70 ms for each long name
    lambda text, times: (text * times)[:63].strip("-") or "0",
    st.text("abz019-", min_size=1, max_size=8),
    st.integers(1, 63),
)
SLOTS = st.integers(0, 999_999_999).map(str) | st.sampled_from(["build", "import", "007"])


@given(
    owner=OWNERS,
    slot=SLOTS,
    epoch=st.integers(1, 2**31 - 1),
    uid=st.uuids(),
)
def test_every_name_is_one_the_schema_takes(owner: str, slot: str, epoch: int, uid: UUID) -> None:
    name = attempt_name(owner, slot, epoch, uid)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)  # attempts_name_form
    assert len(name) <= 91
    assert is_owner_name(owner)


@pytest.mark.parametrize("name", ["a", "train", "0", "a-b", "a" * 63])
def test_an_owners_name_is_a_dns_label(name: str) -> None:  # SC-102
    assert is_owner_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a_b", "a" * 64, "train\n", "é"])
def test_what_is_no_dns_label_names_no_owner(name: str) -> None:
    assert not is_owner_name(name)


def test_the_owner_label_tells_kind_and_name() -> None:  # SC-101, SC-102
    assert owner_label(OwnerKind.JOB, "train") == ("nodus.dev/job", "train")
