"""Odd words, odd streams, and Ctrl-C: one sentence that helps, never a traceback."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Nodus
from tests.cli.live import NODUS, begun, environment
from tests.cli.test_bad_input import refusal


@pytest.mark.parametrize("address", ["", " ", "\udcff", "a\0b", "a\nb"])
@pytest.mark.parametrize(
    "command",
    [
        ("up", "--port", "0", "--bind"),
        ("serve", "--port", "0", "--bind"),
        ("schedule", "--runner-port", "0", "--health-port", "0", "--runner-bind"),
        ("schedule", "--runner-port", "0", "--health-port", "0", "--health-bind"),
    ],
)
def test_what_is_no_address_is_not_listened_on(
    nodus: Nodus, command: tuple[str, ...], address: str, tmp_path: Path
) -> None:
    """An empty one would be every address of the machine."""
    result = nodus(
        *command, address, "--database-url", "postgresql:///x", "--data-dir", tmp_path / "d"
    )

    assert "is no address to listen on" in refusal(result)


@pytest.mark.parametrize("name", ["", " ", "ann ", "a\nb", "\x1b[31mred", "a" * 254])
@pytest.mark.parametrize(
    "command",
    [
        ("token", "create", "--user"),
        ("token", "create", "--user", "ann", "--group"),
        ("project", "add-member", "default", "--user"),
        ("project", "remove-member", "default", "--group"),
    ],
)
def test_a_name_that_no_list_could_show_is_refused(
    nodus: Nodus, command: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    said = refusal(nodus(*command, name, "--data-dir", tmp_path))

    assert "cannot be a user or group: a name has 1 to 253 characters" in said


@pytest.mark.parametrize("word", ["a\nb", "\x1b[31mred", "\u202egnirts"])
def test_a_sentence_is_one_line_that_commands_no_terminal(
    nodus: Nodus, clean_database: str, word: str
) -> None:
    said = refusal(nodus("stop", word, "--database-url", clean_database))

    assert said.startswith("There is no job/")
    assert said.isprintable()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--server", "https://"), "must be an https:// URL"),
        (("--server", "https://a b"), "must be an https:// URL"),
        (("--server", "https://a", "-n", "Team A"), "cannot name a project"),
    ],
)
def test_a_kubeconfig_that_no_client_could_use_is_refused(
    nodus: Nodus, flags: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert said in refusal(nodus("kubeconfig", *flags, "--data-dir", tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("", "holds no figures"),
        ("[]", "holds no figures"),
        ('{"rows": [{}]}', "holds no figures"),
    ],
)
def test_the_benchmark_reads_what_it_compares_with_before_it_runs(
    nodus: Nodus, text: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "before.json"
    if text is not None:
        file.write_text(text)

    assert said in refusal(nodus("bench", "--compare", file))
    assert "give another file with --json" in refusal(nodus("bench", "--json", tmp_path / "no/x"))


# -- streams ---------------------------------------------------------------------------------------


def shell(line: str, **more: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of shell in which `nodus` is the program."""
    return subprocess.run(  # noqa: S603 -- ours
        ["/bin/sh", "-c", f'nodus() {{ "{NODUS[0]}" -m nodus_api.cli.main "$@"; }}\n{line}'],
        capture_output=True,
        timeout=120,
        check=False,
        env={**environment(), **more},
    )


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    # longer than a pipe holds, whatever its reader takes
    line = "{ nodus token --help; for i in 1 2 3; do nodus up --help; done; } | head -n 1"
    done = shell(line)

    assert done.stderr == b""
    assert done.stdout.startswith(b"Usage: nodus token")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    done = shell(f"nodus doctor --print-config --data-dir {tmp_path} {closed}")

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    done = shell(f"nodus doctor --print-config --data-dir {tmp_path} >/dev/full")

    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: The output cannot be used (No space left on device)")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "around",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"COLUMNS": "20", "NO_COLOR": "1", "TERM": "dumb"},
    ],
)
def test_any_terminal_will_do(around: dict[str, str], tmp_path: Path) -> None:
    done = shell(
        f"nodus doctor --print-config --data-dir {tmp_path}/ü && nodus up --help", **around
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"data_dir" in done.stdout


@pytest.mark.parametrize("command", [("get",), ("cost",), ("stop", "x"), ("doctor",), ("migrate",)])
def test_ctrl_c_is_130_while_a_command_waits(command: tuple[str, ...], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a database that says nothing
        url = f"postgresql://ann@127.0.0.1:{silent.getsockname()[1]}/nodus"
        whole = [*NODUS, *command, "--database-url", url, "--data-dir", str(tmp_path)]
        with begun(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            silent.settimeout(60)
            met, _ = silent.accept()
            with met:
                os.kill(child.pid, signal.SIGINT)
                out, err = child.communicate(timeout=60)

    assert (child.returncode, out, err) == (130, b"", b"Interrupted.\n")
