"""Settings: order of sources, refusals, masks."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from nodus_api.settings import (
    Settings,
    SettingsError,
    database_url,
    default_data_dir,
    has_password,
    load_settings,
    mask_url,
    masked,
    variables,
)


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*variables(Settings.model_fields), "NODUS_CONFIG_FILE"]:
        monkeypatch.delenv(name, raising=False)


def test_defaults_are_those_of_the_architecture() -> None:  # AS-117: default ports
    settings = load_settings()

    assert (settings.port, settings.runner_port, settings.health_port) == (8443, 8445, 8446)
    assert settings.bind == "127.0.0.1"
    assert settings.retain_finished == timedelta(hours=24)
    assert settings.retain_finished_count == 2000
    assert settings.local_rate == Decimal("0.06")
    assert settings.watchcache_window == timedelta(minutes=5)
    assert settings.consistency_interval == timedelta(minutes=5)
    assert database_url(settings) is None


def test_flags_go_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # AS-117
    file = tmp_path / "nodus.yaml"
    file.write_text("port: 1111\nbind: 127.0.0.3\nlog_level: error\nfeed_retention: 2h\n")
    monkeypatch.setenv("NODUS_CONFIG_FILE", str(file))
    monkeypatch.setenv("NODUS_PORT", "2222")
    monkeypatch.setenv("NODUS_BIND", "127.0.0.2")

    settings = load_settings(port=3333, bind=None)

    assert settings.port == 3333
    assert settings.bind == "127.0.0.2"
    assert settings.log_level == "error"
    assert settings.feed_retention == timedelta(hours=2)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("PT90S", 90)])
def test_durations_carry_a_unit(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds: int
) -> None:  # AS-117
    monkeypatch.setenv("NODUS_REQUEST_TIMEOUT", text)

    assert load_settings().request_timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["90", "1.5", "0", "soon"])
def test_a_bare_number_is_no_duration(monkeypatch: pytest.MonkeyPatch, text: str) -> None:  # AS-117
    monkeypatch.setenv("NODUS_REQUEST_TIMEOUT", text)

    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value) == (
        f"NODUS_REQUEST_TIMEOUT: '{text}' is not a duration:"
        " write it with a unit, such as 90s, 1h30m or PT90S."
    )


def test_a_number_in_the_file_is_no_duration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # AS-117
    file = tmp_path / "nodus.yaml"
    file.write_text("request_timeout: 90\n")
    monkeypatch.setenv("NODUS_CONFIG_FILE", str(file))

    with pytest.raises(SettingsError, match="NODUS_REQUEST_TIMEOUT: 90 is not a duration"):
        load_settings()


def test_a_wrong_value_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODUS_PORT", "many")

    with pytest.raises(SettingsError, match=r"^NODUS_PORT is 'many': Input should be a valid"):
        load_settings()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("prot: 1\n", "'prot' is not a setting; `nodus doctor --print-config` shows all names."),
        ("- 1\n", "is no mapping"),
        ("{", "cannot be read as YAML"),
    ],
)
def test_a_bad_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, sentence: str
) -> None:
    file = tmp_path / "nodus.yaml"
    file.write_text(content)
    monkeypatch.setenv("NODUS_CONFIG_FILE", str(file))

    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert sentence in str(caught.value)


def test_an_empty_file_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "nodus.yaml"
    file.touch()
    monkeypatch.setenv("NODUS_CONFIG_FILE", str(file))

    assert load_settings().port == 8443


def test_the_variables_of_programs_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODUS_SLOT", "3")  # SC-143: a program may itself run nodus
    monkeypatch.setenv("NODUS_EPOCH", "1")

    assert load_settings().port == 8443


def test_settings_are_frozen() -> None:
    settings = load_settings()

    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]  # the point of this test


def test_certificate_and_key_belong_together() -> None:  # AS-078
    with pytest.raises(SettingsError, match="give both or neither"):
        load_settings(tls_cert_file=Path("server.crt"))


def test_names_may_stand_in_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODUS_TLS_SAN", "a.example, b.example")

    assert load_settings().tls_san == ("a.example", "b.example")
    assert load_settings(tls_san=("c.example",)).tls_san == ("c.example",)


def test_a_database_url_may_come_from_a_file(tmp_path: Path) -> None:  # AS-117
    file = tmp_path / "url"
    file.write_text("postgresql://nodus@db/nodus\n")

    assert database_url(load_settings(database_url_file=file)) == "postgresql://nodus@db/nodus"
    given = load_settings(database_url_file=file, database_url="postgresql://other/nodus")
    assert database_url(given) == "postgresql://other/nodus"


def test_an_unusable_database_url_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        database_url(load_settings(database_url_file=tmp_path / "missing"))
    (tmp_path / "empty").touch()
    with pytest.raises(SettingsError, match="is empty; write one line such as"):
        database_url(load_settings(database_url_file=tmp_path / "empty"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pa$$@db:5432/nodus", "postgresql://me:***@db:5432/nodus"),
        ("postgresql://me@db/nodus?password=x&a=b", "postgresql://me@db/nodus?password=***&a=b"),
        ("postgresql:///nodus?host=/run", "postgresql:///nodus?host=/run"),
        ("postgresql://me@db:5432/nodus", "postgresql://me@db:5432/nodus"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:  # AS-117
    assert mask_url(url) == shown
    assert has_password(url) == (url != shown)


def test_every_setting_is_shown_and_secrets_are_not() -> None:  # AS-117
    shown = masked(
        load_settings(database_url="postgresql://me:secret@db/nodus", tls_san=("a", "b"))
    )

    assert set(shown) == set(Settings.model_fields)
    assert shown["database_url"] == "postgresql://me:***@db/nodus"
    assert shown["retain_finished"] == "24h"
    assert shown["tls_san"] == "a,b"
    assert shown["allow_self_signed"] == "false"
    assert shown["public_url"] == ""
    assert shown["port"] == "8443"


def test_the_data_directory_depends_on_the_user() -> None:
    assert default_data_dir(uid=0, home=Path("/root")) == Path("/var/lib/nodus")
    assert default_data_dir(uid=5, home=Path("/home/a")) == Path("/home/a/.local/share/nodus")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("RETAIN_FINISHED", "24", "is not a duration"),
        ("RETAIN_FINISHED", "-1h", "is not a duration"),
        ("RETAIN_FINISHED_COUNT", "-1", "greater than or equal to 0"),
        ("RETAIN_FINISHED_COUNT", "many", "valid integer"),
        ("ARCHIVE_RETENTION", "90", "is not a duration"),
    ],
)
def test_retention_is_checked(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:  # SC-806
    monkeypatch.setenv(f"NODUS_{name}", text)

    with pytest.raises(SettingsError, match=f"NODUS_{name}.*{said}"):
        load_settings()
    monkeypatch.setenv(f"NODUS_{name}", "168h" if "COUNT" not in name else "7")
    assert getattr(load_settings(), name.lower()) in (7, timedelta(days=7))


@pytest.mark.parametrize("text", ["0", "0s", "999ms", "-1s", "300"])
def test_the_cache_is_compared_at_most_once_a_second(text: str) -> None:  # G11
    with pytest.raises(SettingsError, match="NODUS_CONSISTENCY_INTERVAL"):
        load_settings(consistency_interval=text)
    assert load_settings(consistency_interval="1s").consistency_interval == timedelta(seconds=1)
