"""What the runner finds its machine to be, told before anything starts (SC-012, SC-641)."""

import shutil

from tests.runner.conftest import Bench


async def test_a_disk_that_is_too_full_is_told(bench: Bench) -> None:
    asked = shutil.disk_usage(bench.root).total + (1 << 30)
    bench.prepare("/bin/true", disk_bytes=asked)
    await bench.run()

    registered = await bench.server.wait_for("registered")

    (failed,) = registered["checks"]["failed"]
    assert failed.startswith(f"disk: {asked / (1 << 30):.1f} GiB asked for, ")
    assert registered["checks"]["cpus"] >= 1


async def test_a_machine_as_promised_has_no_failed_check(bench: Bench) -> None:
    bench.prepare("/bin/true", disk_bytes=1 << 20)
    await bench.run()

    assert "failed" not in (await bench.server.wait_for("registered"))["checks"]
