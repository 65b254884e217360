"""Log lines."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest

from nodus_api import logs
from nodus_api.tokens import make_token


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    level = root.level
    out = io.StringIO()
    handler = logs.configure(stream=out)
    yield out
    root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def line(out: io.StringIO) -> dict[str, object]:
    (text,) = out.getvalue().splitlines()
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_a_record_is_one_object_a_line(stream: io.StringIO) -> None:
    logging.getLogger("nodus_api.part").info(
        "An Attempt\nstarted", extra={"attempt": "train-0-e1-abcde", "epoch": 1}
    )

    found = line(stream)
    assert datetime.fromisoformat(str(found.pop("time"))).tzinfo is not None
    assert found == {
        "level": "info",
        "logger": "nodus_api.part",
        "message": "An Attempt\nstarted",
        "attempt": "train-0-e1-abcde",
        "epoch": 1,
    }


def test_uvicorn_s_colours_are_dropped(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").warning("Started", extra={"color_message": "\x1b[1mStarted"})

    assert set(line(stream)) == {"time", "level", "logger", "message"}


def test_what_libraries_say_of_themselves_is_left_out(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 1)
    migration = logging.getLogger("alembic.runtime.migration")
    migration.info("Context impl %s.", "PostgresqlImpl")
    migration.info("Will assume %s DDL.", "transactional")
    migration.info("Running upgrade %s -> %s", "0001", "0002")

    assert line(stream)["message"] == "Running upgrade 0001 -> 0002"


def test_fields_are_added_to_every_record_of_a_block(stream: io.StringIO) -> None:
    with logs.fields(request="r-1"):
        logging.getLogger("nodus_api.part").warning("A request was refused")
    assert line(stream)["request"] == "r-1"


def test_an_exception_is_part_of_the_object(stream: io.StringIO) -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("nodus_api.part").exception("A pass failed")

    text = str(line(stream)["exception"])
    assert text.startswith("Traceback")
    assert text.endswith("RuntimeError: broken")


def test_levels_below_the_chosen_one_are_silent(stream: io.StringIO) -> None:
    logging.getLogger("nodus_api.part").debug("A detail")

    assert stream.getvalue() == ""


def test_passwords_and_tokens_never_appear(stream: io.StringIO) -> None:  # AS-117, AS-067
    token = make_token(bytes(8), bytes(32))
    logging.getLogger("nodus_api.part").info(
        "Connected", extra={"url": "postgresql://me:secret@db/nodus", "token": token.text}
    )

    text = stream.getvalue()
    assert "secret" not in text
    assert token.text not in text
    assert line(stream)["token"] == "nodus_aaaaaaaaaaaa_***"  # noqa: S105 -- a mask
    assert line(stream)["url"] == "postgresql://me:***@db/nodus"


def test_configuring_again_replaces_the_handler(stream: io.StringIO) -> None:
    other = io.StringIO()
    handler = logs.configure(stream=other, style="json")
    logging.getLogger("nodus_api.part").info("Once")
    logging.getLogger().removeHandler(handler)

    assert stream.getvalue() == ""
    assert line(other)["message"] == "Once"


def test_a_terminal_gets_text_for_people() -> None:
    other = io.StringIO()
    handler = logs.configure(stream=other, style="console")
    logging.getLogger("nodus_api.part").info("Ready", extra={"port": 8443})
    logging.getLogger().removeHandler(handler)

    assert "Ready" in other.getvalue()
    assert "8443" in other.getvalue()
    assert not other.getvalue().startswith("{")
