"""How the demo shows what clients see, and what it says at the end."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from decimal import Decimal

import click

from nodus_api.cli.api_client import ATTEMPTS
from nodus_api.cli.data_directory import DataDirectory
from nodus_api.cli.demo.story import Attempt
from nodus_api.cli.errors import Failed
from nodus_api.cli.tabular import render_table


def kubectl(directory: DataDirectory) -> None:
    """Print the Attempts through kubectl, if it is on the PATH."""
    program = shutil.which("kubectl")
    if program is None:
        click.echo("\n(kubectl is not on the PATH, so it is not shown.)")
        return
    click.echo("\n$ kubectl get attempts -o wide")
    shown = subprocess.run(  # noqa: S603 -- found on the PATH, arguments as a list
        [program, "--kubeconfig", str(directory.kubeconfig), "get", "attempts", "-o", "wide"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "KUBECACHEDIR": str(directory.root / "kube-cache")},
    )
    click.echo(shown.stdout, nl=False)
    if shown.returncode != 0:
        raise Failed(f"kubectl ended with exit code {shown.returncode}: {shown.stderr.strip()}")


def https(server: str, attempts: Sequence[Attempt]) -> None:
    """Print the Attempts as they came through plain HTTPS."""
    click.echo(f"\nThe Attempts through plain HTTPS, {server}{ATTEMPTS.format('default')}:\n")
    headings = ("NAME", "PHASE", "REASON", "EXIT", "OFFERING", "RUNNING", "COST USD", "NEXT")
    rows = []
    for one in attempts:
        status = one["status"]
        actual = status.get("actual", {})
        rows.append(
            [
                one["metadata"]["name"],
                status["phase"],
                status.get("reason", ""),
                str(status.get("exitCode", "")),
                status.get("placement", {}).get("offering", ""),
                actual.get("segments", {}).get("runningUSD", ""),
                actual.get("costUSD", ""),
                status.get("supersededBy", ""),
            ]
        )
    click.echo(render_table(headings, rows), nl=False)


def interruptions(attempts: Sequence[Attempt]) -> None:
    """Print what each interruption cost in work and time, and where its successor went on."""
    click.echo("\nWhat was interrupted, what was lost, and when it went on:\n")
    successors = {one["metadata"]["name"]: one for one in attempts}
    rows = []
    for one in attempts:
        status = one["status"]
        what = status.get("interruption")
        if what is None:
            continue
        successor = successors.get(status.get("supersededBy", ""))
        cursor = successor["spec"].get("restoreFrom", {}).get("cursor", {}) if successor else {}
        rows.append(
            [
                one["metadata"]["name"],
                what["trigger"],
                f"{what['lostSeconds']} s",
                f"{what['recoverySeconds']} s" if "recoverySeconds" in what else "",
                f"{cursor['completed']} of {cursor['total']}" if cursor else "",
                ", ".join(status["actual"]["segments"].get("coveredByNodus", ())),
            ]
        )
    headings = ("NAME", "TRIGGER", "WORK LOST", "RECOVERY", "WENT ON FROM", "COVERED BY NODUS")
    click.echo(render_table(headings, rows), nl=False)


def checked(attempts: Sequence[Attempt]) -> str:
    """Return what was found to be true."""
    total = sum((Decimal(one["status"]["actual"]["costUSD"]) for one in attempts), Decimal(0))
    return (
        "Checked: every program started once; every replacement did the steps that were left, and"
        " no other; every result\nis that of the run that nothing disturbed; the bills, counted"
        f" again from {len(attempts)} objects alone, add up to {total} USD.\n"
    )


def indented(text: str) -> str:
    """Return a text as it stands in a file, set apart."""
    return "".join(f"    {line}\n" for line in text.splitlines())
