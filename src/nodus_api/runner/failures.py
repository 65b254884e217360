"""What the system refused, in words for the owner of the program: no numbers, no codes."""

import errno
import os

_WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk can only be read",
    errno.EIO: "the disk failed",
    errno.EFBIG: "a file is larger than may be written",
    errno.ENOENT: "it is not there any more",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.ENOMEM: "there is no memory left",
}


def plainly(error: OSError | ValueError) -> str:
    """Return why a call failed and on which file: `the disk is full: /state/weights`."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    words = _WORDS.get(error.errno, os.strerror(error.errno).lower())
    path = error.filename  # a number where the call was given one
    return f"{words}: {os.fsdecode(path)}" if isinstance(path, str | bytes) else words
