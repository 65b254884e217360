"""The demo's arithmetic: fits a noisy exponential decay by Gauss-Newton, and checks the result.

Data are y = a·exp(−k·t) + c with noise. Step i of the work fits (a, k, c) to the i-th sample, so
the same steps in the same order give the same result, whoever does them and however often the work
was interrupted.
"""

import math
import random
from collections.abc import Sequence

TRUTH = (5.0, 1.3, 0.5)
NOISE = 0.05
POINTS = 200

Vector = tuple[float, float, float]


def step(i: int) -> Vector:
    """Do step `i` of the work: one fit to one sample."""
    return fit(sample(random.Random(f"decay {i}")))  # noqa: S311 -- noise, not secrets


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
        move = solve(normal, right)
        a, k, c = a + move[0], k + move[1], c + move[2]
        if max(abs(part) for part in move) < 1e-10:
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


def means(fits: Sequence[Vector]) -> Vector:
    """Return the mean estimate of (a, k, c)."""
    a, k, c = (math.fsum(one[i] for one in fits) / len(fits) for i in range(3))
    return a, k, c


def well(fits: Sequence[Vector]) -> bool:
    """Return whether every mean agrees with the truth."""
    return all(agrees([one[i] for one in fits], TRUTH[i]) for i in range(3))


def agrees(estimates: Sequence[float], truth: float) -> bool:
    """Return whether the mean of independent estimates is close to the truth.

    Close is five standard errors, or a thousandth: least squares of a curve has a small bias,
    which many fits would uncover.
    """
    n = len(estimates)
    mean = sum(estimates) / n
    variance = sum((one - mean) ** 2 for one in estimates) / (n - 1)
    return abs(mean - truth) <= max(5.0 * math.sqrt(variance / n), abs(truth) / 1000)
