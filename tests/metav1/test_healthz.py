"""Health texts: AS-104."""

from nodus_api.metav1.healthz import HEADERS, CheckResult, HealthText, health, single_check

PING, DATABASE = CheckResult(name="ping"), CheckResult(name="database")
BROKEN = CheckResult(name="database", failure="connection refused")


def test_ok_is_two_letters() -> None:
    assert health("readyz", [PING, DATABASE]) == HealthText(status=200, body=b"ok")
    assert HEADERS == {
        "Content-Type": "text/plain; charset=utf-8",
        "X-Content-Type-Options": "nosniff",
    }


def test_verbose_names_each_check() -> None:  # AS C51
    answer = health("readyz", [PING, DATABASE], verbose=True)
    assert answer.body == b"[+]ping ok\n[+]database ok\nreadyz check passed\n"


def test_a_failure_is_verbose_and_withholds_its_reason() -> None:
    assert health("readyz", [PING, BROKEN]) == HealthText(
        status=500, body=b"[+]ping ok\n[-]database failed: reason withheld\nreadyz check failed\n"
    )


def test_checks_can_be_excluded() -> None:  # AS C51
    answer = health("readyz", [PING, BROKEN], verbose=True, excluded=["database", "zz", "x"])
    assert answer == HealthText(
        status=200,
        body=b"[+]ping ok\n[+]database excluded: ok\n"
        b'warn: some health checks cannot be excluded: no matches for "x", "zz"\n'
        b"readyz check passed\n",
    )


def test_one_check_alone_tells_its_reason() -> None:
    assert single_check(PING) == HealthText(status=200, body=b"ok")
    assert single_check(BROKEN) == HealthText(
        status=500, body=b"internal server error: connection refused\n"
    )
