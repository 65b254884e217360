"""An Attempt's name, and the names it is found by (SC-102, SC-103)."""

import re
from base64 import b32encode
from hashlib import sha256
from uuid import UUID

from nodus_api.kernel.vocabulary import OwnerKind

MAX_OWNER_LENGTH = 63
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_HASH_LENGTH = 5


def attempt_name(owner: str, slot: str, epoch: int, owner_uid: UUID) -> str:
    """Return `{owner}-{slot}-e{epoch}-{h}` (SC-103), at most 91 characters.

    h comes from the owner's uid, so that owners of one name but of two kinds, or
    deleted and made again, never share a name. The same arguments give the same
    name: inserting an Attempt is idempotent.
    """
    digest = sha256(str(owner_uid).encode("ascii")).digest()
    suffix = b32encode(digest).decode("ascii").lower()[:_HASH_LENGTH]
    return f"{owner}-{slot}-e{epoch}-{suffix}"


def owner_label(kind: OwnerKind, name: str) -> tuple[str, str]:
    """Return the one owner label of an Attempt: key and value (SC-102)."""
    return kind.label, name


def is_owner_name(name: str) -> bool:
    """Whether a workload may be called so: a DNS label of at most 63 characters (SC-102)."""
    return len(name) <= MAX_OWNER_LENGTH and _LABEL.fullmatch(name) is not None
