"""Sockets that are bound before anything starts."""

import os
import socket

import pytest

from nodus_api.cli import listening
from nodus_api.cli.errors import Refused


def test_port_0_takes_a_free_one() -> None:
    with listening.bind("127.0.0.1", 0) as bound:
        port = listening.port_of(bound)
        with socket.create_connection(("127.0.0.1", port), 5):
            pass

    assert port > 0


def test_a_port_in_use_says_what_to_do() -> None:  # AS-095
    with listening.bind("127.0.0.1", 0) as bound:
        port = listening.port_of(bound)
        with pytest.raises(Refused) as found:
            listening.bind("127.0.0.1", port)

    assert str(found.value) == (
        f"Port {port} on 127.0.0.1 is in use: stop the program that listens there,"
        " or choose another port with --port (0 takes a free one)."
    )
    assert found.value.exit_code == 2


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(Refused, match="give an address of this machine"):
        listening.bind("192.0.2.1", 0)


def test_a_handed_over_socket_is_adopted() -> None:
    with (
        listening.bind("127.0.0.1", 0) as bound,
        listening.adopt(os.dup(bound.fileno())) as same,
    ):
        assert listening.port_of(same) == listening.port_of(bound)


def test_a_wrong_descriptor_is_refused() -> None:
    with pytest.raises(Refused, match="Descriptor 9999 is no socket"):
        listening.adopt(9999)
