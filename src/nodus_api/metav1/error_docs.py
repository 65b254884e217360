"""The pages behind `docs`: what a code means and what to do, as HTML or plain text (LW-202)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus

from nodus_api.metav1.codes import CODES, Code

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem;"
    "color-scheme:light dark}code{font-size:.95em}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page's bytes and content type, to be sent with HEADERS."""

    body: bytes
    content_type: str


def page(
    code: str,
    *,
    html: bool,
    registries: Sequence[Mapping[str, Code]] = (CODES,),
    standalone: bool = True,
) -> Page | None:
    """Return the page about a code, None if no registry has it.

    A word that several registries know is explained for each. What to do about rights depends on
    whether this server checks them itself, `standalone`, or the cluster does.
    """
    found = [codes[code] for codes in registries if code in codes]
    if not found:
        return None
    parts = []
    for meaning in found:
        remedy = meaning.remedy_of(standalone=standalone)
        where = "" if len(found) == 1 else f" ({_place(meaning)})"
        parts += [(f"When{where}", meaning.when), (f"What to do{where}", remedy)]
    return _page(code, _subtitle(found[0]), parts, html=html)


def index(*, html: bool, registries: Sequence[Mapping[str, Code]] = (CODES,)) -> Page:
    """Return the page that lists all codes."""
    parts = [(code.reason, code.when) for codes in registries for code in codes.values()]
    return _page("Errors of Nodus API", "Each code has a page of its own.", parts, html=html)


def _place(code: Code) -> str:
    return "error" if code.http else "in an object"


def _subtitle(code: Code) -> str:
    if not code.http:
        return "Stands in an object or in the cause of an error."
    return "HTTP " + ", ".join(f"{status} {HTTPStatus(status).phrase}" for status in code.http)


def _page(title: str, subtitle: str, parts: list[tuple[str, str]], *, html: bool) -> Page:
    if not html:
        sections = "".join(f"\n{heading}:\n  {text}\n" for heading, text in parts)
        return Page(body=f"{title}\n{subtitle}\n{sections}".encode(), content_type=TEXT)
    sections = "".join(
        f"<h2>{escape(heading)}</h2><p>{_marked(text)}</p>" for heading, text in parts
    )
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1><p>{escape(subtitle)}</p>{sections}</html>\n"
    )
    return Page(body=body.encode(), content_type=HTML)


def _marked(text: str) -> str:
    """Escape a text and show what stands between backquotes as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))
