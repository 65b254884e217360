"""The seams of the architecture, held by reading the source's syntax tree.

Time only through `clock`; randomness and ids only where parts are joined; background
tasks only through `tasks.spawn`; SQL only through `storage`; no executor in decisions;
no set iterated where order can show.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "nodus_api"


@dataclass(frozen=True)
class Seam:
    """Names that only some modules may use, and what to write instead."""

    forbidden: frozenset[str]
    doors: tuple[str, ...]
    instead: str


SEAMS = {
    "time": Seam(
        forbidden=frozenset(
            {
                "time.time",
                "time.time_ns",
                "time.monotonic",
                "time.monotonic_ns",
                "time.perf_counter",
                "time.sleep",
                "asyncio.sleep",
                "datetime.now",
                "datetime.utcnow",
                "datetime.datetime.now",
                "date.today",
            }
        ),
        # The runner and the demo's programs stand alone; the supervisor's and the benchmark's
        # processes measure the machine itself.
        doors=("clock.py", "runner/", "bench/", "cli/demo/"),
        instead="take a Clock, or `now` as an argument",
    ),
    "chance": Seam(
        forbidden=frozenset(
            {
                "uuid.uuid4",
                "uuid.uuid1",
                "uuid4",
                "secrets.token_bytes",
                "secrets.token_hex",
                "secrets.token_urlsafe",
                "os.urandom",
                "random.random",
                "random.Random",
                "random.uniform",
                "random.randint",
                "random.choice",
            }
        ),
        doors=("cli/", "tls.py"),
        instead="take an id source or a seeded generator as an argument",
    ),
    "tasks": Seam(
        forbidden=frozenset({"asyncio.create_task", "asyncio.ensure_future", "create_task"}),
        doors=("tasks.py",),
        instead="nodus_api.tasks.spawn(name, coroutine)",
    ),
    "executor": Seam(
        forbidden=frozenset({"run_in_executor"}),
        doors=(),
        instead="asyncio.to_thread at the edge, never in a decision",
    ),
    "sql": Seam(
        forbidden=frozenset({"create_async_engine", "create_engine", "asyncpg.connect"}),
        doors=("storage/",),
        instead="nodus_api.storage.engine.Database",
    ),
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text("utf-8"))


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for an attribute chain of names, else ``""``."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            head = dotted(value)
            return f"{head}.{attr}" if head else attr
        case _:
            return ""


def uses(tree: ast.Module, forbidden: frozenset[str]) -> list[int]:
    """Return the lines that name something forbidden, called or passed on."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = dotted(node)
            parts = name.split(".")
            if {name, ".".join(parts[-2:]), parts[-1]} & forbidden:
                lines.add(node.lineno)
    return sorted(lines)


@pytest.mark.parametrize("name", SEAMS)
def test_a_seam_has_no_second_door(name: str) -> None:
    seam = SEAMS[name]
    found = [
        f"{module}:{line}"
        for module, tree in modules()
        if not module.startswith(seam.doors)
        for line in uses(tree, seam.forbidden)
    ]
    assert not found, f"{seam.instead}: {found}"


def iterated_sets(tree: ast.Module) -> list[int]:
    """Return the lines of loops and comprehensions that run over a set written in place."""
    iterables = [
        node.iter for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension)
    ]
    return [
        it.lineno
        for it in iterables
        if isinstance(it, ast.Set | ast.SetComp)
        or (isinstance(it, ast.Call) and dotted(it.func) in {"set", "frozenset"})
    ]


def test_no_set_is_iterated_where_order_can_show() -> None:
    found = [f"{module}:{line}" for module, tree in modules() for line in iterated_sets(tree)]
    assert not found, f"sort it first: {found}"


@pytest.mark.parametrize(
    ("source", "seam"),
    [
        ("import time\ntime.time()", "time"),
        ("from datetime import datetime\nx = datetime.now", "time"),
        ("import uuid\nuuid.uuid4()", "chance"),
        ("import asyncio\nasyncio.create_task(f())", "tasks"),
        ("loop.run_in_executor(None, f)", "executor"),
        ("import asyncpg\nasyncpg.connect()", "sql"),
    ],
)
def test_the_lint_sees_each_breach(source: str, seam: str) -> None:
    assert uses(ast.parse(source), SEAMS[seam].forbidden)


def test_the_lint_sees_an_iterated_set() -> None:
    assert iterated_sets(ast.parse("for x in {1, 2}:\n    f(x)")) == [1]
    assert iterated_sets(ast.parse("[x for x in set(y)]")) == [1]
