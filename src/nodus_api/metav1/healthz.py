"""The texts of /livez, /readyz and /healthz, to the letter of Kubernetes (AS-104)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEADERS = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of one named check; the failure is told on the check's own path only."""

    name: str
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthText:
    """A status and a body, to be sent with HEADERS."""

    status: int
    body: bytes


def health(
    endpoint: str,
    results: Sequence[CheckResult],
    *,
    verbose: bool = False,
    excluded: Iterable[str] = (),
) -> HealthText:
    """Return the answer of `livez`, `readyz` or `healthz`: `ok`, or a line a check.

    A failure is always verbose and withholds its reason, since anyone may ask.
    """
    left = set(excluded)
    lines = []
    failed = False
    for result in results:
        if result.name in left:
            left.discard(result.name)
            lines.append(f"[+]{result.name} excluded: ok\n")
        elif result.failure is None:
            lines.append(f"[+]{result.name} ok\n")
        else:
            failed = True
            lines.append(f"[-]{result.name} failed: reason withheld\n")
    if left:
        names = ", ".join(f'"{name}"' for name in sorted(left))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
    text = "".join(lines)
    if failed:
        return HealthText(status=500, body=f"{text}{endpoint} check failed\n".encode())
    if not verbose:
        return HealthText(status=200, body=b"ok")
    return HealthText(status=200, body=f"{text}{endpoint} check passed\n".encode())


def single_check(result: CheckResult) -> HealthText:
    """Return the answer of one check's own path, such as `/readyz/database`."""
    if result.failure is None:
        return HealthText(status=200, body=b"ok")
    return HealthText(status=500, body=f"internal server error: {result.failure}\n".encode())
