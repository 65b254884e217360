"""What is meant to differ, and the verdict on what was compared."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.differential.asking import MISSING, Ask, Difference, differences

Holds = Callable[[Any], bool]


def anything(_: Any) -> bool:
    """Hold for whatever stands there."""
    return True


def missing(value: Any) -> bool:
    """Hold where nothing stands."""
    return value is MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """One meant difference: where it is (a pattern of its whole path), and what stands there.

    `instead` says that the answers are two different ones: then nothing else in them is compared.
    `asked` is a pattern found in the request.
    """

    rule: str
    why: str
    path: str
    kube: Holds = anything
    ours: Holds = anything
    asked: str = ""
    instead: bool = False

    def __str__(self) -> str:
        return f"{self.rule} {self.why}"

    def covers(self, one: Ask, found: Difference) -> bool:
        """Return whether a difference in the answers to a request is this one."""
        return bool(
            re.fullmatch(self.path, found.path)
            and re.search(self.asked, str(one))
            and self.kube(found.kube)
            and self.ours(found.ours)
        )


@dataclass
class Verdict:
    """What was compared, what fell under which entry, and what under none."""

    entries: Sequence[Allowed]
    compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def judge(self, one: Ask, kube: Any, ours: Any) -> None:
        """Compare the answers to one request."""
        self.compared += 1
        found = list(differences(kube, ours))
        for entry in self.entries:
            if entry.instead and any(entry.covers(one, each) for each in found):
                self.counts[str(entry)] += 1
                return
        for each in found:
            meant = [e for e in self.entries if not e.instead and e.covers(one, each)]
            if meant:
                self.counts[str(meant[0])] += 1
            else:
                self.unexplained.append(f"{one}\n    {each}")

    def unused(self) -> list[str]:
        """Return the entries that nothing fell under."""
        return [str(entry) for entry in self.entries if not self.counts[str(entry)]]

    def summary(self) -> str:
        """Say how much was compared, and how many differences fell under each entry."""
        lines = [f"{self.compared} requests compared"]
        lines += [f"{self.counts[str(entry)]:6d}  {entry}" for entry in self.entries]
        return "\n".join(lines)


def is_one_of(*values: Any) -> Holds:
    """Return what holds for these values."""
    return lambda value: value in values


def says(pattern: str) -> Holds:
    """Return what holds for texts in which a pattern is found."""
    return lambda value: isinstance(value, str) and re.search(pattern, value) is not None
