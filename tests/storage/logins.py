"""Other logins and databases of a test server, which trusts whoever asks."""

from urllib.parse import urlsplit


def as_login(url: str, login: str) -> str:
    """Return `url` with another user."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()


def in_database(url: str, database: str) -> str:
    """Return `url` with another database."""
    return urlsplit(url)._replace(path=f"/{database}").geturl()
