"""How a command ends badly: one sentence on stderr, exit 2 for bad input, exit 1 for the rest."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodus_api.cli.refusals import Failed as Failed
from nodus_api.cli.refusals import Refused as Refused
from nodus_api.settings import SettingsError
from nodus_api.storage import errors as storage
from nodus_api.tls import CertificateError

_BAD_INPUT = (
    SettingsError,
    CertificateError,
    storage.StorageUnavailable,
    storage.SchemaMismatch,
    storage.TooOldServer,
    storage.MigrationRefused,
    storage.DataDirectoryRefused,
)

# what a driver or a server says to text that is not UTF-8, or that holds a NUL
_NO_TEXT = frozenset({"22000", "22021", "22P05"})


@contextmanager
def reported() -> Iterator[None]:
    """Turn the errors of our parts into `Refused` and `Failed`."""
    try:
        yield
    except _BAD_INPUT as error:
        raise Refused(str(error)) from error
    except storage.StorageFault as error:
        if error.sqlstate in _NO_TEXT:
            raise Refused(
                "A name or value that was given is no UTF-8 text: write it in letters and digits."
            ) from error
        raise Failed(str(error)) from error
    except storage.StorageError as error:
        raise Failed(str(error)) from error
