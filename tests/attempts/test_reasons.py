"""The codes inside an Attempt have pages: SC-010, SC-011, SC-310."""

import pytest

from nodus_api.attempts.reasons import PAGES, REASONS, REJECTIONS, WAITS
from nodus_api.kernel.rejection import RejectionCode
from nodus_api.kernel.vocabulary import Reason, WaitingFor
from nodus_api.metav1 import error_docs


def test_every_code_is_explained() -> None:
    assert set(REASONS) == {reason.value for reason in Reason}
    assert set(REJECTIONS) == {code.value for code in RejectionCode}
    assert set(WAITS) == {wait.value for wait in WaitingFor}  # SC-009a


@pytest.mark.parametrize("code", [*REASONS, *REJECTIONS, *WAITS])
def test_every_code_has_a_page(code: str) -> None:
    page = error_docs.page(code, html=False, registries=PAGES)
    assert page is not None
    meaning = REASONS.get(code) or REJECTIONS.get(code) or WAITS[code]
    assert meaning.when.endswith(".")
    assert meaning.remedy.endswith(".")
    assert meaning.when in page.body.decode()
    assert meaning.remedy in page.body.decode()


def test_an_internal_error_is_explained_twice() -> None:
    page = error_docs.page("InternalError", html=False, registries=PAGES)
    assert page is not None
    assert page.body.decode().count("When (") == 2
