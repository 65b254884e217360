"""Listening sockets, bound before anything starts, and handed to children (AS-095)."""

import errno
import socket

from nodus_api.cli.errors import Refused


def bind(address: str, port: int, *, flag: str = "--port") -> socket.socket:
    """Return a listening TCP socket; port 0 takes a free one.

    Raises Refused, which says what to do, when the port is in use or the address is not ours.
    """
    if not address.strip() or not address.isprintable():  # "" would be every address there is
        raise Refused(
            f"{address!r} is no address to listen on: give one of this machine, such as 127.0.0.1;"
            " 0.0.0.0 is all of them."
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise Refused(_sentence(error, address, port, flag)) from error
    bound.setblocking(False)
    return bound


def adopt(descriptor: int) -> socket.socket:
    """Return the socket that a parent bound and handed over by its descriptor.

    Raises Refused if there is none.
    """
    try:
        inherited = socket.socket(fileno=descriptor)
    except OSError as error:
        raise Refused(
            f"Descriptor {descriptor} is no socket: this option is for `nodus up`; give --port."
        ) from error
    inherited.setblocking(False)
    return inherited


def port_of(bound: socket.socket) -> int:
    """Return the port a socket listens on."""
    port: int = bound.getsockname()[1]
    return port


def _sentence(error: OSError, address: str, port: int, flag: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"Port {port} on {address} is in use: stop the program that listens there,"
                f" or choose another port with {flag} (0 takes a free one)."
            )
        case errno.EACCES:
            return f"Port {port} may not be used by this user: choose one above 1023 with {flag}."
        case _:
            return (
                f"Nothing can listen on {address} port {port} ({error.strerror}): give an address"
                " of this machine."
            )
