"""The demo's program: fits a noisy exponential decay by Gauss-Newton, and checks its own result.

It stands alone (standard library only) and runs as `python3 demo_fit.py SECONDS [SLOT]`. Data are
y = a·exp(−k·t) + c with noise; it fits (a, k, c) to fresh samples again and again for at least
SECONDS, then compares the mean of its estimates with the truth: exit 0 if they agree, 1 if not.
The slot given as SLOT finds its data broken in its first epoch and exits 3, to show a retry.
"""

import math
import os
import random
import sys
import time
from collections.abc import Sequence

TRUTH = (5.0, 1.3, 0.5)
NOISE = 0.05
POINTS = 400
BROKEN = 3

Vector = tuple[float, float, float]


def sample(chance: random.Random) -> list[tuple[float, float]]:
    """Return noisy observations (t, y) of the decay."""
    a, k, c = TRUTH
    times = [4.0 * i / (POINTS - 1) for i in range(POINTS)]
    return [(t, a * math.exp(-k * t) + c + chance.gauss(0.0, NOISE)) for t in times]


def fit(data: Sequence[tuple[float, float]], start: Vector = (4.0, 1.0, 0.0)) -> Vector:
    """Return the least-squares estimate of (a, k, c) by Gauss-Newton steps."""
    a, k, c = start
    for _ in range(50):
        normal = [[0.0] * 3 for _ in range(3)]
        right = [0.0] * 3
        for t, y in data:
            e = math.exp(-k * t)
            gradient = (e, -a * t * e, 1.0)
            residual = y - (a * e + c)
            for i in range(3):
                right[i] += gradient[i] * residual
                for j in range(3):
                    normal[i][j] += gradient[i] * gradient[j]
        step = solve(normal, right)
        a, k, c = a + step[0], k + step[1], c + step[2]
        if max(abs(part) for part in step) < 1e-10:
            break
    return a, k, c


def solve(matrix: list[list[float]], right: list[float]) -> Vector:
    """Return x of matrix · x = right, 3 by 3, by elimination with pivoting."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(3):
        pivot = max(range(i, 3), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, 3):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    x = [0.0] * 3
    for i in reversed(range(3)):
        known = sum(rows[i][j] * x[j] for j in range(i + 1, 3))
        x[i] = (rows[i][3] - known) / rows[i][i]
    return x[0], x[1], x[2]


def agrees(estimates: Sequence[float], truth: float) -> bool:
    """Return whether the mean of independent estimates is close to the truth.

    Close is five standard errors, or a thousandth: least squares of a curve has a small bias,
    which many fits would uncover.
    """
    n = len(estimates)
    mean = sum(estimates) / n
    variance = sum((one - mean) ** 2 for one in estimates) / (n - 1)
    return abs(mean - truth) <= max(5.0 * math.sqrt(variance / n), abs(truth) / 1000)


def main(arguments: Sequence[str]) -> int:
    """Fit for a while, check the result, and return the exit code."""
    seconds = float(arguments[0])
    slot, epoch = os.environ.get("NODUS_SLOT", "0"), os.environ.get("NODUS_EPOCH", "1")
    chance = random.Random(f"decay {slot}")  # noqa: S311 -- noise, not secrets
    begun = time.monotonic()
    fits: list[Vector] = []
    while time.monotonic() - begun < seconds or len(fits) < 20:
        fits.append(fit(sample(chance)))
    if arguments[1:] == [slot] and epoch == "1":
        sys.stdout.write("the data of this slot are broken at the first try\n")
        return BROKEN
    well = all(agrees([one[i] for one in fits], TRUTH[i]) for i in range(3))
    means = [sum(one[i] for one in fits) / len(fits) for i in range(3)]
    sys.stdout.write(
        f"{len(fits)} fits: a={means[0]:.4f} k={means[1]:.4f} c={means[2]:.4f}"
        f" {'agree with' if well else 'differ from'} a={TRUTH[0]} k={TRUTH[1]} c={TRUTH[2]}\n"
    )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
