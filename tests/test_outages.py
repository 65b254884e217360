"""One line when something begins to fail, one when it is over."""

import logging

import pytest

from nodus_api.outages import Outage
from nodus_api.storage.errors import StorageFault, StorageRefused, StorageUnavailable


def test_each_kind_of_failure_is_told_once_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(logging.getLogger("nodus_api.test"), begins="it fails", over="it works")
    away, full = StorageUnavailable("here", "gone"), StorageRefused("53100", "no room")
    with caplog.at_level(logging.INFO):
        outage.passed()
        for error in (away, away, StorageUnavailable("here", "refused"), full, full):
            outage.failed(error, step="place")
        outage.passed()
        outage.passed()
        outage.failed(StorageFault("XX000", "odd"))

    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("WARNING", "it fails"),
        ("WARNING", "it fails"),
        ("INFO", "it works"),
        ("WARNING", "it fails"),
    ]
    assert vars(caplog.records[1])["cause"] == str(full)
    assert vars(caplog.records[1])["step"] == "place"
