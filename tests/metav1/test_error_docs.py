"""The pages behind `docs`: LW-202."""

import pytest

from nodus_api.metav1 import error_docs
from nodus_api.metav1.codes import CODES, Code


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_page_in_both_forms(code: str) -> None:
    text = error_docs.page(code, html=False)
    page = error_docs.page(code, html=True)
    assert text is not None
    assert page is not None
    assert text.content_type == "text/plain; charset=utf-8"
    assert text.body.decode().startswith(f"{code}\n")
    assert CODES[code].when in text.body.decode()
    assert CODES[code].remedy in text.body.decode()
    assert page.content_type == "text/html; charset=utf-8"
    assert f"<h1>{code}</h1>" in page.body.decode()


def test_a_page_says_its_status() -> None:
    page = error_docs.page("RequestEntityTooLarge", html=False)
    assert page is not None
    assert page.body.splitlines()[1].startswith(b"HTTP 413 ")
    cause = error_docs.page("FieldValueForbidden", html=False)
    assert cause is not None
    assert cause.body.splitlines()[1] == b"Stands in an object or in the cause of an error."


def test_an_unknown_code_has_none() -> None:
    assert error_docs.page("Nope", html=True) is None


def test_texts_are_escaped_and_commands_marked() -> None:
    codes = {"X": Code(reason="X", http=(400,), when="a < b.", remedy="Run `x <y>`.")}
    page = error_docs.page("X", html=True, registries=(codes,))
    assert page is not None
    assert b"<p>a &lt; b.</p>" in page.body
    assert b"<p>Run <code>x &lt;y&gt;</code>.</p>" in page.body
    assert b"HTTP 400 Bad Request" in page.body


def test_the_index_lists_all() -> None:
    index = error_docs.index(html=False).body.decode()
    assert all(f"\n{code}:\n" in index for code in CODES)
    assert b"Errors of Nodus API" in error_docs.index(html=True).body


def test_a_word_with_two_meanings_has_both_on_its_page() -> None:  # SC-011
    other = {"InternalError": Code(reason="InternalError", when="Here.", remedy="There.")}
    page = error_docs.page("InternalError", html=False, registries=(CODES, other))
    assert page is not None
    text = page.body.decode()
    assert f"When (error):\n  {CODES['InternalError'].when}" in text
    assert "When (in an object):\n  Here." in text
    assert "What to do (in an object):\n  There." in text
