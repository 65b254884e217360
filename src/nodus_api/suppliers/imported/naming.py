"""The name of a class: stable for ever, so that it is made in one place (SC-201)."""

from decimal import Decimal


def class_name(
    *,
    accelerator: str | None,
    form: str | None,
    count: int,
    accelerator_memory_gib: Decimal | None,
    vcpus: Decimal,
    memory_gib: Decimal,
    region_class: str,
) -> str:
    """Return `h100-sxm-80g-x1-us`, or `cpu-8c-32g-us` without accelerator.

    Numbers are whole, rounded down; 0 stands for less than one.
    """
    if accelerator is None:
        return f"cpu-{int(vcpus)}c-{int(memory_gib)}g-{region_class}"
    kind = accelerator if form is None else f"{accelerator}-{form}"
    return f"{kind}-{int(accelerator_memory_gib or 0)}g-x{count}-{region_class}"
