"""One replica's view of the Attempts: loaded once, kept by following the change log."""

from nodus_api.watchcache.cacher import AttemptCache

__all__ = ["AttemptCache"]
