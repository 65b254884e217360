"""First start: certificates, admin token, kubeconfig."""

from pathlib import Path

import yaml
from cryptography import x509

from nodus_api.cli import bootstrap
from nodus_api.cli.data_directory import open_data_directory
from nodus_api.clock import SystemClock
from nodus_api.storage.access_store import AccessAdmin
from nodus_api.storage.engine import Database
from nodus_api.tokens import hash_secret, parse_token


async def test_the_admin_token_is_made_once(
    scheduler_database: Database, clean_database: str, tmp_path: Path
) -> None:  # AS-066
    directory = open_data_directory(tmp_path)
    await bootstrap.ensure_admin(directory, clean_database)
    first = directory.token.read_text()
    await bootstrap.ensure_admin(directory, clean_database)

    assert directory.token.read_text() == first
    assert directory.token.stat().st_mode & 0o777 == 0o600
    (stored,) = await AccessAdmin(scheduler_database).list_tokens()
    assert (stored.username, stored.groups, stored.expires) == ("admin", ("nodus:admins",), None)
    parsed = parse_token(first.strip())
    assert parsed == (stored.id, parsed[1] if parsed else b"")
    assert parsed is not None
    assert hash_secret(parsed[1]) == stored.secret_sha256


async def test_a_token_that_the_database_does_not_know_is_replaced(
    scheduler_database: Database, clean_database: str, tmp_path: Path
) -> None:
    directory = open_data_directory(tmp_path)
    await bootstrap.ensure_admin(directory, clean_database)
    first = parse_token(directory.token.read_text().strip())
    assert first is not None
    await AccessAdmin(scheduler_database).revoke_token(first[0])

    await bootstrap.ensure_admin(directory, clean_database)
    second = parse_token(directory.token.read_text().strip())
    directory.token.write_text("damaged")
    await bootstrap.ensure_admin(directory, clean_database)

    assert second is not None
    assert second[0] != first[0]
    assert len(await AccessAdmin(scheduler_database).list_tokens()) == 3


def test_the_ca_is_given_out_and_the_address_is_in_the_certificate(tmp_path: Path) -> None:
    directory = open_data_directory(tmp_path)
    files = bootstrap.make_certificates(
        directory, bind="127.0.0.9", extra=["nodus.example"], clock=SystemClock()
    )

    assert files.ca is not None
    assert directory.ca.read_bytes() == files.ca.read_bytes()
    leaf = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "nodus.example"} <= set(names.get_values_for_type(x509.DNSName))
    addresses = [str(one) for one in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "127.0.0.9"]


def test_the_kubeconfig_is_private(tmp_path: Path) -> None:  # AS-074
    directory = open_data_directory(tmp_path)
    directory.ca.write_text("the CA")
    directory.token.write_text("word\n")
    bootstrap.write_kubeconfig(directory, "https://127.0.0.1:8443")

    assert directory.kubeconfig.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(directory.kubeconfig.read_text())
    assert config["users"] == [{"name": "admin", "user": {"token": "word"}}]
