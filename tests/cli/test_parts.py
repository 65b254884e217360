"""`nodus up` gives its parts the settings that it was given."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest

from nodus_api.cli.parts import as_environment
from nodus_api.cli.schedule import schedule
from nodus_api.cli.serve import serve
from nodus_api.cli.up import up
from nodus_api.settings import Settings, load_settings, variables

CHOSEN_BY_UP = {
    *("listen_fd", "health_fd", "socket_only"),  # its sockets, handed over
    *("tls_cert_file", "tls_private_key_file", "cert_dir"),  # D/certs, which D/kubeconfig trusts
    *("shutdown_delay", "shutdown_watch_grace"),  # no load balancer needs time
    *("runner_bind", "runner_port"),  # runners of this machine report to D/run
}
EVERYTHING: dict[str, Any] = {
    "data_dir": Path("/var/tmp/d"),  # noqa: S108 -- a name, never opened
    "database_pool_size": 7,
    "log_level": "debug",
    "log_format": "json",
    "bind": "127.0.0.9",
    "port": 1443,
    "public_url": "https://nodus.example",
    "tls_cert_file": Path("/c.pem"),
    "tls_private_key_file": Path("/k.pem"),
    "cert_dir": Path("/certs"),
    "tls_san": ("a.example", "b.example"),
    "tls_min_version": "1.3",
    "allow_self_signed": True,
    "request_timeout": timedelta(seconds=61.5),
    "shutdown_delay": timedelta(seconds=1),
    "shutdown_watch_grace": timedelta(0),
    "cors_allowed_origins": ("https://one.test", "https://two.test"),
    "runner_bind": "127.0.0.2",
    "runner_port": 1445,
    "health_bind": "127.0.0.3",
    "health_port": 1446,
    "local_slots": 3,
    "supplier": "simulated",
    "simulated_speed": 60.0,
    "simulated_seed": 7,
    "local_rate": Decimal("0.000001"),
    "feed_retention": timedelta(hours=2),
    "feed_require_heartbeat": True,
    "watchcache_window": timedelta(minutes=6),
    "watchcache_documents": timedelta(seconds=76),
    "consistency_interval": timedelta(seconds=90),
    "retain_finished": timedelta(days=2, microseconds=1),
    "retain_finished_count": 0,
    "archive_retention": timedelta(days=91),
}
ONE_VALUE_ONLY = {"auth_mode"}
BY_FILE = {"database_url", "database_url_file"}


def _names(command: click.Command) -> set[str]:
    return {str(one.name) for one in command.params}


def test_up_takes_what_its_parts_take() -> None:
    assert (_names(serve) | _names(schedule)) - _names(up) == CHOSEN_BY_UP


def test_a_part_has_the_settings_of_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in variables(Settings.model_fields):
        monkeypatch.delenv(name, raising=False)
    assert set(EVERYTHING) | ONE_VALUE_ONLY | BY_FILE == set(Settings.model_fields)
    given = load_settings(**EVERYTHING, database_url="postgresql://ann:secret@db/nodus")
    passed = as_environment(given)
    assert "secret" not in "".join(passed.values())  # AS-117

    other = tmp_path / "nodus.yaml"  # what stands in the file by the time that a part is restarted
    other.write_text("retain_finished_count: 5\ndatabase_pool_size: 9\n")
    monkeypatch.setenv("NODUS_CONFIG_FILE", str(other))
    for name, text in passed.items():
        monkeypatch.setenv(name, text)

    assert load_settings().model_dump(exclude=BY_FILE) == given.model_dump(exclude=BY_FILE)


def test_what_was_not_given_stays_at_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*variables(Settings.model_fields), "NODUS_CONFIG_FILE"]:
        monkeypatch.delenv(name, raising=False)
    before = load_settings()
    for name, text in as_environment(before).items():
        monkeypatch.setenv(name, text)

    assert load_settings() == before
