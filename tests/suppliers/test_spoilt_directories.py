"""Programs that write where the supplier's records lie: it may cost their own machine, no other."""

import stat
from pathlib import Path

import pytest
from tests.suppliers.conformance import INSTALLATION, an_intent, eventually
from tests.suppliers.conftest import LocalFleet

from nodus_api.runner import files
from nodus_api.runner.session import process_stat
from nodus_api.suppliers.local.view import exit_record
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import Verdict

JUNK = [
    "{}",
    "[1",
    "[]",
    '{"pid": 0, "startTicks": 1, "bootId": "x", "startedAt": "2026-01-01T00:00:00+00:00"}',
    '{"pid": "x", "startTicks": 1e999, "bootId": 3, "startedAt": 5}',
    '{"installation": 5, "cgroup": 3, "at": 4}',
    '{"at": "2026-01-01T00:00:00", "exitCode": 0, "signal": null, "oom": false, "error": null,'
    ' "exitAgeMs": 1, "message": ""}',
]
EARLY = (
    '{"at": "0001-01-01T00:00:00+00:00", "exitCode": 0, "signal": null, "oom": false,'
    ' "error": null, "exitAgeMs": 1000, "message": ""}'
)
EVERYWHERE = (
    "for f in intent.json runner.json spawned.json exit.json reclaim.json deleting; do {}; done"
)
SPOILT = {
    **{
        f"junk {at}": EVERYWHERE.format(f"printf %s '{junk}' > ../$f")
        for at, junk in enumerate(JUNK)
    },
    "an end before all time": f"printf %s '{EARLY}' > ../exit.json",
    "records that wait for a writer": EVERYWHERE.format("rm -f ../$f; mkfifo ../$f"),
    "records that are folders": EVERYWHERE.format("rm -f ../$f; mkdir ../$f"),
    "records that lead in a circle": EVERYWHERE.format("ln -sf $f ../$f"),
    "records larger than memory": EVERYWHERE.format("truncate -s 4T ../$f"),
    "a deletion that begins late": (
        'trap "" TERM; echo \'{"at": "9000-01-01T00:00:00+00:00"}\' > ../deleting'
    ),
    "a deletion at the end of time": (
        'trap "" TERM; echo \'{"at": "9999-12-31T23:59:59+00:00"}\' > ../deleting'
    ),
    "records removed": EVERYWHERE.format("rm -f ../$f"),
    "all removed": "rm -rf ../*",
    "directory removed": "cd /; rm -rf {here}",
    "directory replaced by a link": "cd /; mv {here} {aside}; ln -s {elsewhere} {here}",
    "directory replaced by a file": "cd /; mv {here} {aside}; : > {here}",
    "folders without end": "i=0; while [ $i -lt 1200 ]; do mkdir d; cd -P d; i=$((i+1)); done",
}


@pytest.mark.parametrize("way", SPOILT)
async def test_a_spoilt_machine_hides_no_other_and_is_removed(fleet: LocalFleet, way: str) -> None:
    supplier = fleet.supplier
    good = await supplier.create(an_intent("good", "sleep", "60"))
    here, mark = fleet.root / "machines" / "spoilt", fleet.root / "pid"
    elsewhere = fleet.root / "elsewhere"
    elsewhere.mkdir()
    spoil = SPOILT[way].replace("{here}", str(here)).replace("{elsewhere}", str(elsewhere))
    spoil = spoil.replace("{aside}", f"{fleet.root}/aside")
    script = f"{spoil}; echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 61"
    await supplier.create(an_intent("spoilt", "/bin/sh", "-c", script))

    async def started() -> bool:
        return mark.exists()

    await eventually(started)
    assert good.handle in await supplier.observe(["spoilt", good.handle])
    assert good.handle in [one.handle async for one in supplier.list_owned(INSTALLATION)]

    async def gone() -> bool:
        await supplier.delete("spoilt")
        return (await supplier.prove_deleted("spoilt")).verdict is Verdict.GONE

    await eventually(gone)
    program = process_stat(int(mark.read_text()))
    assert program is None or not program.alive
    assert list(elsewhere.iterdir()) == []
    assert good.handle in await supplier.observe([good.handle])


def test_a_closed_directory_is_opened_again(tmp_path: Path) -> None:
    directories = WorkDirectories(tmp_path)
    directories.make("closed", {"installation": str(INSTALLATION)}, "token")
    record = directories.path("closed") / files.INTENT
    record.chmod(0)
    directories.path("closed").chmod(0)

    directories.open_up("closed")

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (directories.path("closed"), record)]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize(
    "change",
    [
        {"at": "2026-01-01T00:00:00"},
        {"at": 5},
        {"exitCode": 256},
        {"exitCode": "0"},
        {"signal": 0},
        {"exitAgeMs": 10**18},
        {"exitAgeMs": -1},
        {"startAgeMs": "x"},
    ],
)
def test_a_final_report_that_is_none_is_no_end(change: dict[str, object]) -> None:  # SC-644
    right = {
        "at": "2026-01-01T00:00:00+00:00",
        "exitCode": 3,
        "signal": None,
        "oom": False,
        "error": None,
        "message": "",
        "exitAgeMs": 12,
        "startAgeMs": 2000,
    }
    whole = exit_record(right)
    assert whole is not None
    assert (whole.exit_code, whole.exit_age, whole.started_age) == (3, 0.012, 2.0)
    assert exit_record(right | change) is None
