"""Files of offers are read as they are: every quirk, and every row that cannot be believed."""

import csv
import io
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.suppliers.catalog import merge
from nodus_api.suppliers.imported import (
    BadFile,
    Listing,
    read_forms,
    read_native,
    read_skypilot,
)
from nodus_api.suppliers.imported.samples import SAMPLE_CLOUDS, sample_forms, sample_prices
from nodus_api.suppliers.supplier import OfferedClass

ONE = Decimal(1)
GPU = "{'Gpus': [{'Name': 'H100', 'MemoryInfo': {'SizeInMiB': 81920}}], 'TotalGpuMemoryInMiB': 1}"
H100 = {
    "InstanceType": "p5.48xlarge",
    "AcceleratorName": "H100",
    "AcceleratorCount": "8",
    "vCPUs": "192",
    "MemoryGiB": "2048",
    "GpuInfo": GPU,
    "Price": "68.80",
    "SpotPrice": "24.8609",
    "Region": "us-east-1",
    "AvailabilityZone": "us-east-1a",
    "Arch": "x86_64",
}
CPU = H100 | {
    "InstanceType": "m8i.2xlarge",
    "AcceleratorName": "",
    "AcceleratorCount": "",
    "vCPUs": "8",
    "MemoryGiB": "32",
    "GpuInfo": "",
    "Price": "0.42336",
    "SpotPrice": "0.2180",
}
FORMS = read_forms(sample_forms(), "aws")


def table(*rows: Mapping[str, str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def read(*rows: Mapping[str, str], markup: Decimal = ONE) -> Listing:
    return read_skypilot(table(*rows), FORMS, markup=markup)


def the_class(row: Mapping[str, str]) -> OfferedClass:
    listing = read(row)
    assert listing.rejected == ()
    (found,) = listing.rows
    return found.offer.offered_class


# cloud, instance type, on-demand, spot, class: SC-207, every row
SAMPLE = """
nebius gpu-h100-sxm_1gpu-16vcpu-200gb 2.95 1.25 h100-sxm-80g-x1-eu
nebius gpu-h100-sxm_8gpu-128vcpu-1600gb 23.60 10.00 h100-sxm-80g-x8-eu
nebius gpu-h200-sxm_1gpu-16vcpu-200gb 3.50 1.45 h200-sxm-141g-x1-us
nebius gpu-b200-sxm_8gpu-160vcpu-1792gb 44.00 - b200-sxm-180g-x8-us
nebius cpu-d3_8vcpu-32gb 0.1984 - cpu-8c-32g-us
lambda gpu_8x_h100_sxm5 23.92 - h100-sxm-80g-x8-us
lambda gpu_1x_gh200 1.49 - gh200-96g-x1-us
lambda gpu_1x_a6000 0.80 - a6000-48g-x1-us
aws p4d.24xlarge 21.957642 6.289 a100-sxm-40g-x8-us
aws p4de.24xlarge 27.44705 9.7262 a100-sxm-80g-x8-us
aws p5.48xlarge 68.80 24.8609 h100-sxm-80g-x8-jp
aws p3.8xlarge 12.24 1.9241 v100-sxm-16g-x4-us
aws m8i.2xlarge 0.42336 0.2180 cpu-8c-32g-us
"""


def test_the_sample_is_what_the_clouds_publish() -> None:  # SC-201, SC-207
    found = []
    for cloud in SAMPLE_CLOUDS:
        forms = read_forms(sample_forms(), cloud)
        listing = read_skypilot(sample_prices(cloud), forms, markup=ONE)
        assert (listing.rejected, listing.skipped) == ((), ())
        found += [
            (
                cloud,
                one.offer.instance_type,
                one.offer.cost_on_demand,
                one.offer.cost_spot,
                one.offer.offered_class.name,
            )
            for one in listing.rows
        ]
    expected = [
        (cloud, kind, Decimal(cost), None if spot == "-" else Decimal(spot), name)
        for cloud, kind, cost, spot, name in map(str.split, SAMPLE.strip().splitlines())
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("order", [list(H100), list(reversed(H100))])
def test_columns_are_found_by_name(order: list[str]) -> None:  # SC-206
    assert the_class({name: H100[name] for name in order}).name == "h100-sxm-80g-x8-us"


def test_columns_of_some_clouds_only_may_be_missing() -> None:  # SC-206: zone and Arch
    short = {name: text for name, text in H100.items() if name not in ("AvailabilityZone", "Arch")}
    (row,) = read(short).rows
    assert (row.offer.zone, row.offer.offered_class.arch) == ("", "amd64")


QUIRKS: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "GpuInfo is a Python literal": ({}, {"accelerator_memory_gib": Decimal(80)}),
    "the total of GpuInfo counts for nothing": (
        {"GpuInfo": GPU.replace(": 1}", ": 655360}")},
        {"accelerator_memory_gib": Decimal(80)},
    ),
    "a count of 8.0": ({"AcceleratorCount": "8.0"}, {"count": 8}),
    "memory in the accelerator's name": (
        {"AcceleratorName": "H100-80GB"},
        {"accelerator": "h100", "name": "h100-sxm-80g-x8-us"},
    ),
    "no spot price": ({"SpotPrice": ""}, {"rate_spot": None}),
    "spot at no discount": ({"SpotPrice": "68.80"}, {"rate_spot": Decimal("68.80")}),
    "arm64": ({"Arch": "arm64"}, {"arch": "arm64"}),
    "London is not the continent": (
        {"Region": "eu-west-2"},
        {"region_class": "uk", "name": "h100-sxm-80g-x8-uk"},
    ),
    "memory of a fraction, never rounded up": (
        {**CPU, "MemoryGiB": "1.69921875", "vCPUs": "1.0"},
        {"memory_gib": Decimal("1.69"), "name": "cpu-1c-1g-us"},
    ),
    "GpuInfo is empty for CPU rows": (CPU, {"accelerator": None, "count": 0, "form": None}),
    "a count of 0 for CPU rows": ({**CPU, "AcceleratorCount": "0"}, {"count": 0}),
    "a count of 0.0 for CPU rows": ({**CPU, "AcceleratorCount": "0.0"}, {"count": 0}),
}


@pytest.mark.parametrize("case", QUIRKS)
def test_a_quirk_of_the_files_is_survived(case: str) -> None:  # SC-206
    change, expected = QUIRKS[case]
    found = the_class(H100 | change)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_row_without_a_price_is_skipped() -> None:  # SC-206
    listing = read({**H100, "Price": ""}, CPU)
    assert [(one.line, one.cause) for one in listing.skipped] == [(2, "Price is empty")]
    assert [one.line for one in listing.rows] == [3]


def test_spot_prices_of_zones_are_offers_of_one_class() -> None:  # SC-206, SC-204
    zones = [
        {**H100, "AvailabilityZone": f"us-east-1{zone}", "SpotPrice": price, "vCPUs": cpus}
        for zone, price, cpus in (
            ("a", "6.289", "96"),
            ("b", "14.1051", "95"),
            ("c", "12.4991", "97"),
        )
    ]
    listing = read(*zones)
    assert [one.offer.cost_spot for one in listing.rows] == [
        Decimal("6.289"), Decimal("14.1051"), Decimal("12.4991"),
    ]  # fmt: skip
    (offered,) = merge({"aws": [one.offer for one in listing.rows]}).classes
    assert (offered.rate_spot, offered.vcpus) == (Decimal("6.289"), Decimal(95))


def test_a_rate_is_the_cost_with_its_markup_half_up() -> None:  # SC-208
    (row,) = read({**CPU, "Price": "0.0000015", "SpotPrice": "0.1"}, markup=Decimal("1.25")).rows
    assert row.offer.cost_on_demand == Decimal("0.000002")
    assert row.offer.offered_class.rate_on_demand == Decimal("0.000003")  # 0.0000025
    assert row.offer.offered_class.rate_spot == Decimal("0.125000")


BAD = {
    "Price '1e3' is not": {"Price": "1e3"},
    "Price '-1' is not": {"Price": "-1"},
    "Price 'NaN' is not": {"Price": "NaN"},
    "Price '1,5' is not": {"Price": "1,5"},
    "Price is 0": {"Price": "0.0"},
    "Price 99999999999 is too large": {"Price": "99999999999"},
    "SpotPrice 'none' is not": {"SpotPrice": "none"},
    "SpotPrice is 0": {"SpotPrice": "0"},
    "vCPUs is empty": {"vCPUs": ""},
    "MemoryGiB is 0": {"MemoryGiB": "0.001"},
    "AcceleratorCount 0.5 is not a whole": {"AcceleratorCount": "0.5"},
    "AcceleratorCount of 'H100' is not from 1": {"AcceleratorCount": ""},
    "AcceleratorCount of '\\x1b[2J' is not": {  # nothing of a file moves the terminal's cursor
        "AcceleratorName": "\x1b[2J",
        "AcceleratorCount": "0",
    },
    "AcceleratorCount is given without": {"AcceleratorName": ""},
    "AcceleratorName 'H 100' cannot": {"AcceleratorName": "H 100"},
    "GpuInfo does not say": {"GpuInfo": '{"Gpus": []}'},
    "GpuInfo does not say ": {"GpuInfo": "__import__('os').abort()"},
    "GpuInfo does not say Gpus": {"GpuInfo": "(" * 5000},
    "Gpus[0].MemoryInfo.SizeInMiB of GpuInfo is no": {"GpuInfo": GPU.replace("81920", "80")},
    "no form and speed of x9.large": {"InstanceType": "x9.large"},
    "InstanceType is empty": {"InstanceType": " "},
    "Region is not a name": {"Region": "us east"},
    "region mars-1 is not in the mapping file": {"Region": "mars-1"},
    "Arch 'sparc' is not known": {"Arch": "sparc"},
}


@pytest.mark.parametrize("cause", BAD)
def test_a_row_that_cannot_be_believed_is_told_with_its_line(cause: str) -> None:  # SC-208
    listing = read(CPU, H100 | BAD[cause], {**CPU, "Region": "us-west-1"})
    assert [one.line for one in listing.rows] == [2, 4]
    (rejected,) = listing.rejected
    assert rejected.line == 3
    assert rejected.cause.startswith(cause)


def test_a_row_that_contradicts_another_is_rejected() -> None:
    listing = read(H100, {**H100, "Price": "1"}, H100)
    assert [(one.line, one.cause) for one in listing.rejected] == [(3, "contradicts line 2")]
    assert [(one.line, one.cause) for one in listing.skipped] == [(4, "repeats line 2")]


def test_a_row_of_another_width_is_rejected() -> None:
    listing = read_skypilot(table(H100) + "a,b\n\n", FORMS, markup=ONE)
    assert [(one.line, one.identity) for one in listing.rejected] == [(3, None)]
    assert len(listing.rows) == 1


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", table(H100).replace("Price", "Cost", 1), table(H100) + '"open']
)
def test_what_is_no_price_list_is_refused_whole(text: str) -> None:
    with pytest.raises(BadFile):
        read_skypilot(text, FORMS, markup=ONE)


@given(
    bad=st.lists(st.tuples(st.sampled_from(sorted(BAD)), st.integers(0, 3)), max_size=5),
    noise=st.dictionaries(st.sampled_from(sorted(H100)), st.text(max_size=12), max_size=3),
)
def test_no_bad_row_changes_what_others_say(
    bad: list[tuple[str, int]], noise: dict[str, str]
) -> None:
    good = [{**CPU, "AvailabilityZone": f"z{number}"} for number in range(3)]
    mixed = list(good)
    for cause, place in bad:
        mixed.insert(place, H100 | BAD[cause])
    alone = [one.offer for one in read(*good).rows]
    assert [one.offer for one in read(*mixed).rows] == alone
    odd = read(*good, H100 | noise)  # whatever it holds, it is one row, taken or not
    assert [one.offer for one in odd.rows][:3] == alone


FORMS_BAD = {
    "other: {}": "no entry for aws",
    "aws: {types: {p5.: {sped: 1}}}": "'sped' is not known",
    "aws: {types: {p5.: {speed: fast}}}": "speed 'fast'",
    "aws: {types: {p5.: {speed: 0}}}": "speed 0",
    "aws: {types: {p5.: {form: S X}}}": "form 'S X'",
    "aws: {types: {p5.: {gang: perhaps}}}": "gang 'perhaps'",
    "aws: {regions: {us-: mars}}": "region class 'mars'",
    "aws: {incrementSeconds: 0}": "incrementSeconds is 0",
    "aws: {diskGiB: -1}": "diskGiB '-1'",
    "aws: [": "it is not YAML",
    "aws: {}\naws: {}": "stands twice",
    "aws: &a {}\nb: *a": "without an alias",
    "[" * 5000: "it is nested too deeply",
    "": "it is empty",
    "- aws": "must be a mapping",
}


@pytest.mark.parametrize("text", FORMS_BAD)
def test_a_mapping_file_that_cannot_be_believed_is_refused(text: str) -> None:
    with pytest.raises(BadFile, match=FORMS_BAD[text].replace("(", r"\(")):
        read_forms(text, "aws")


NATIVE = """offers:
- instanceType: box-8
  region: hall-1
  regionClass: eu
  accelerator: H100
  form: sxm
  count: 8
  acceleratorMemoryGiB: 80
  vcpus: 128
  memoryGiB: 1600
  diskGiB: 4000
  speed: 1.0
  gang: true
  costOnDemand: 18.40
- {instanceType: small, region: hall-1, regionClass: eu, vcpus: 4, memoryGiB: 16, diskGiB: 50,
   costOnDemand: 0, costSpot: 0, arch: arm64, minimumSeconds: 60}
"""


def test_an_own_fleet_is_read_from_yaml() -> None:  # SC-208
    listing = read_native(NATIVE, markup=Decimal("1.10"))
    assert listing.rejected == ()
    big, small = listing.rows
    assert big.offer.offered_class.name == "h100-sxm-80g-x8-eu"
    assert big.offer.offered_class.rate_on_demand == Decimal("20.24")
    assert big.offer.offered_class.gang_capable
    assert small.offer.offered_class.name == "cpu-4c-16g-eu"
    assert small.offer.offered_class.rate_spot == 0
    assert (big.line, small.line) == (2, 15)


NATIVE_BAD = {
    "colour: red": "'colour' is not known",
    "vcpus: many": "vcpus 'many'",
    "regionClass: mars": "regionClass 'mars'",
    "form: sxm": "form is given without accelerator",
    "accelerator: h100": "count is empty",
    "costOnDemand: -1": "costOnDemand '-1'",
    "incrementSeconds: 0": "incrementSeconds is 0",
    "gang: [1]": "gang must be one value",
}


@pytest.mark.parametrize("change", NATIVE_BAD)
def test_a_bad_offer_of_an_own_fleet_is_told(change: str) -> None:  # SC-208
    fields = {
        "instanceType": "b", "region": "r", "regionClass": "eu", "vcpus": "1", "memoryGiB": "1",
        "diskGiB": "1", "costOnDemand": "1",
    }  # fmt: skip
    name, value = change.split(": ")
    text = ", ".join(f"{key}: {text}" for key, text in (fields | {name: value}).items())
    listing = read_native(f"{NATIVE}- {{{text}}}\n- word\n", markup=ONE)
    assert len(listing.rows) == 2
    first, second = listing.rejected
    assert (first.line, second.line) == (17, 18)
    assert first.cause.startswith(NATIVE_BAD[change])


@pytest.mark.parametrize("text", ["offers: {}", "rows: []", "{}", "x"])
def test_what_is_no_fleet_is_refused_whole(text: str) -> None:
    with pytest.raises(BadFile):
        read_native(text, markup=ONE)
