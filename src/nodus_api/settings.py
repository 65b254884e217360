"""Every NODUS_* setting, typed and frozen (AS-117).

Flags go before the environment, the environment before the file that
`NODUS_CONFIG_FILE` names (YAML, the same names in lower case without the prefix).
Durations carry a unit (`90s`, `1h30m`, `PT90S`); a bare number is refused.
"""

import os
import re
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from nodus_api.durations import format_duration, parse_duration

PREFIX = "NODUS_"
CONFIG_FILE = "NODUS_CONFIG_FILE"
_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+]*://[^/\s:@]*:)(?P<password>[^@\s]+)(?=@)", re.I)
_PASSWORD_FIELD = re.compile(r"(?P<before>[?&\s]password=)(?P<password>[^&\s]+)", re.I)


class SettingsError(Exception):
    """A setting cannot be used; the message is one sentence with what to do."""


def default_data_dir(*, uid: int, home: Path) -> Path:
    """Return the data directory of this user: /var/lib/nodus for root, else below the home."""
    return Path("/var/lib/nodus") if uid == 0 else home / ".local/share/nodus"


def mask_url(url: str) -> str:
    """Return a database URL with its password masked."""
    masked = _PASSWORD.sub(r"\g<before>***", url)
    return _PASSWORD_FIELD.sub(r"\g<before>***", masked)


def has_password(url: str) -> bool:
    """Return whether a database URL carries a password."""
    return mask_url(url) != url


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str) and value.strip() != "0":
        return parse_duration(value)
    raise ValueError(
        f"{value!r} is not a duration: write it with a unit, such as 90s, 1h30m or PT90S"
    )


def _words(value: object) -> object:
    if isinstance(value, str):
        return tuple(word for word in re.split(r"[,\s]+", value) if word)
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(BaseSettings):
    """All settings of every part; each has the environment variable NODUS_<NAME>."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True
    )

    # where things are
    data_dir: Path = Field(
        default_factory=lambda: default_data_dir(uid=os.geteuid(), home=Path.home())
    )
    database_url: SecretStr | None = None
    database_url_file: Path | None = None
    database_pool_size: int = Field(default=5, ge=1, le=100)

    # what is said
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"

    # the API server (AS-066, AS-077, AS-078, AS-092, AS-095)
    bind: str = "127.0.0.1"
    port: Port = 8443
    auth_mode: Literal["standalone"] = "standalone"
    public_url: str | None = None
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    cert_dir: Path | None = None
    tls_san: Words = ()
    tls_min_version: Literal["1.2", "1.3"] = "1.2"
    allow_self_signed: bool = False
    cors_allowed_origins: Words = ()
    request_timeout: Duration = timedelta(seconds=60)
    shutdown_delay: Duration = timedelta(seconds=15)
    shutdown_watch_grace: Duration = timedelta(seconds=10)

    # the scheduler (SC-645) and its suppliers (SC-710, SC-714, SC-730)
    supplier: Literal["local", "simulated"] = "local"
    runner_bind: str = "127.0.0.1"
    runner_port: Port = 8445
    health_bind: str = "127.0.0.1"
    health_port: Port = 8446
    local_slots: int | None = Field(default=None, ge=1, le=4096)
    local_rate: Decimal = Field(default=Decimal("0.06"), ge=0, decimal_places=6)
    simulated_speed: float = Field(default=1.0, ge=1, le=1000, allow_inf_nan=False)
    simulated_seed: int = Field(default=1, ge=0)

    # retention (architecture.md, settled questions)
    feed_retention: Duration = timedelta(hours=1)
    feed_require_heartbeat: bool = False
    watchcache_window: Duration = timedelta(minutes=5)
    watchcache_documents: Duration = timedelta(seconds=75)
    consistency_interval: Duration = Field(default=timedelta(minutes=5), ge=timedelta(seconds=1))
    retain_finished: Duration = timedelta(hours=24)
    retain_finished_count: int = Field(default=2000, ge=0)
    archive_retention: Duration = timedelta(days=90)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: flags, environment, file."""
        named = os.environ.get(CONFIG_FILE)
        if not named:
            return init_settings, env_settings
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, _read_file(Path(named))),
        )


def load_settings(**flags: Any) -> Settings:
    """Return the settings in force; flags that are None count as not given.

    Raises SettingsError with one sentence that names the setting and what to write.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise SettingsError(_sentence(error)) from error
    if (settings.tls_cert_file is None) != (settings.tls_private_key_file is None):
        raise SettingsError(
            "NODUS_TLS_CERT_FILE and NODUS_TLS_PRIVATE_KEY_FILE belong together:"
            " give both or neither."
        )
    return settings


def database_url(settings: Settings) -> str | None:
    """Return the database URL that was given, by value or by file, or None.

    Raises SettingsError when the file cannot be read or is empty.
    """
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    if settings.database_url_file is None:
        return None
    try:
        url = settings.database_url_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The database URL file {settings.database_url_file} cannot be read ({error});"
            " give a file that this user can read."
        ) from error
    if not url:
        raise SettingsError(
            f"The database URL file {settings.database_url_file} is empty;"
            " write one line such as postgresql://user@host/nodus into it."
        )
    return url


def masked(settings: Settings) -> dict[str, str]:
    """Return every setting as text, secrets masked, for people to read."""
    shown: dict[str, str] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        match value:
            case None:
                shown[name] = ""
            case SecretStr():
                shown[name] = mask_url(value.get_secret_value())
            case timedelta():
                shown[name] = format_duration(value)
            case tuple():
                shown[name] = ",".join(value)
            case bool():
                shown[name] = str(value).lower()
            case _:
                shown[name] = str(value)
    return shown


def variables(names: Iterable[str]) -> list[str]:
    """Return the environment variables of the named settings."""
    return [PREFIX + name.upper() for name in names]


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(
            f"{CONFIG_FILE} names {path}, which cannot be read as YAML ({type(error).__name__});"
            " correct the file or unset the variable."
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise SettingsError(
            f"{CONFIG_FILE} names {path}, which is no mapping;"
            " write one `name: value` a line, such as `port: 8443`."
        )
    return content


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    variable = PREFIX + name.upper()
    if first["type"] == "extra_forbidden":
        return f"{name!r} is not a setting; `nodus doctor --print-config` shows all names."
    message = str(first["msg"]).removeprefix("Value error, ")
    shown = "" if "is not a duration" in message else f" is {first['input']!r}"
    return f"{variable}{shown}: {message[0].lower() + message[1:] if not shown else message}."
