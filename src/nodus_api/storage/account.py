"""Which account the embedded server runs as: a server refuses to run as root."""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from nodus_api.storage.errors import EmbeddedServerFailed

ACCOUNT = "nodus-pg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom the server runs as; `switch` is false where that is simply us."""

    name: str
    uid: int
    gid: int
    switch: bool


def choose_account(root: Path) -> Account:
    """Return whom the server runs as: the owner of its data, else `nodus-pg`, else `nobody`."""
    if os.geteuid() != 0:
        return Account(name=f"uid {os.geteuid()}", uid=os.geteuid(), gid=os.getegid(), switch=False)
    for data in sorted(root.glob("pg[0-9][0-9]")):
        made = data.stat()
        if made.st_uid != 0:
            return Account(name=f"uid {made.st_uid}", uid=made.st_uid, gid=made.st_gid, switch=True)
    entry = _find_account(ACCOUNT) or _make_account() or _find_account("nobody")
    if entry is None or entry.pw_uid == 0:
        raise EmbeddedServerFailed(
            "There is no account to run the embedded server as: make one with "
            f"`useradd -r {ACCOUNT}`."
        )
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, switch=True)


def may_enter(folder: Path, account: Account) -> bool:
    """Say whether the account may traverse a folder, by its mode bits."""
    state = folder.stat()
    if state.st_uid == account.uid:
        return bool(state.st_mode & stat.S_IXUSR)
    if state.st_gid == account.gid:
        return bool(state.st_mode & stat.S_IXGRP)
    return bool(state.st_mode & stat.S_IXOTH)


def _find_account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _make_account() -> pwd.struct_passwd | None:
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is not None:
        form = ["-r", "-M", "-d", "/nonexistent", "-s", "/usr/sbin/nologin"]
        # a failure (a read-only /etc, or made by somebody else just now) shows in the look-up
        subprocess.run([useradd, *form, ACCOUNT], capture_output=True, check=False)  # noqa: S603 - found above
    return _find_account(ACCOUNT)
