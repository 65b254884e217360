from nodus_api.bench.report import Report, figure, percentile, rows_of

ROUNDS = [
    {"yardstick": [1.0, 1.0, 3.0], "product": [2.0, 2.0, 2.0]},
    {"yardstick": [2.0, 2.0, 2.0], "product": [5.0, 6.0, 7.0]},
    {"yardstick": [1.0, 2.0, 4.0], "product": [5.0, 5.0, 5.0]},
]


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    yardstick, product = rows_of("delay", "ms", ROUNDS, yardstick="yardstick")

    assert (yardstick.ratio, yardstick.ratio_low, yardstick.ratio_high) == (None, None, None)
    assert (product.ratio, product.ratio_low, product.ratio_high) == (2.5, 2.0, 3.0)


def test_figures_are_taken_over_all_rounds() -> None:
    _, product = rows_of("delay", "ms", ROUNDS, yardstick="yardstick")

    assert (product.samples, product.median, product.p90, product.p99) == (9, 5.0, 7.0, 7.0)


def test_a_percentile_is_a_sample() -> None:
    samples = [float(one) for one in range(1, 101)]

    assert [percentile(samples, share) for share in (0.0, 0.5, 0.9, 0.99, 1.0)] == [
        1.0,
        50.0,
        90.0,
        99.0,
        100.0,
    ]


def test_a_report_as_json_keeps_every_row() -> None:
    rows = tuple(rows_of("delay", "ms", ROUNDS, yardstick="yardstick"))

    document = Report(machine={"cpus": "2"}, rows=rows).to_json()

    assert document["machine"] == {"cpus": "2"}
    assert [row["case"] for row in document["rows"]] == ["yardstick", "product"]
    assert document["rows"][1]["ratio"] == 2.5


def test_a_target_stands_beside_its_case() -> None:
    targets = {"product": "ratio <= 3"}
    yardstick, product = rows_of("delay", "ms", ROUNDS, yardstick="yardstick", targets=targets)
    alone = figure("attempts", "load", "s", [3.0, 1.0, 2.0], "< 10 s")

    assert (yardstick.target, product.target) == (None, "ratio <= 3")
    assert (alone.median, alone.ratio, alone.target) == (2.0, None, "< 10 s")
