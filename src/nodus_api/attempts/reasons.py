"""What the codes inside an Attempt mean: its reasons and its rejections, as pages (SC-010, SC-011).

`status.reason` and `explain.rejected[].reason` are closed sets for one release; clients
must bear new words. While an Attempt is queued, what it waits for has a page as well.
"""

from nodus_api.kernel.rejection import RejectionCode
from nodus_api.kernel.vocabulary import Reason, WaitingFor
from nodus_api.metav1.codes import CODES, Code, registry

AGAIN = "submit it under another name, or run `nodus delete OWNER` first"
"""How a workload that has ended is run again: its name stays taken (SC-802). OWNER is KIND/NAME."""

_ENDED = {
    Reason.PREEMPTED: (
        "The capacity was interruptible and its owner took it back.",
        "Nothing: a new Attempt takes the slot from the last checkpoint, and this one's teardown "
        "is not charged. Ask for capacity that cannot be reclaimed if it happens too often.",
    ),
    Reason.NODE_LOST: (
        "The machine died or stopped answering.",
        "Nothing: a new Attempt takes the slot from the last checkpoint.",
    ),
    Reason.READINESS_FAILED: (
        "The machine failed its checks before the program started: accelerators, driver, disk or "
        "network.",
        "Nothing: a new Attempt takes the slot, and this one is not charged.",
    ),
    Reason.STARTUP_TIMEOUT: (
        "The machine did not register, or the program did not start, in time.",
        "Nothing: a new Attempt takes the slot, and this one is not charged.",
    ),
    Reason.UNPLACEABLE: (
        "No offering can ever match what the workload asks for.",
        "Read status.placement.explain.rejected and ask for less, or allow more offerings; then "
        f"{AGAIN}.",
    ),
    Reason.NO_CAPACITY: (
        "The start deadline passed before capacity was found.",
        "Give limits.startDeadlineSeconds more time, or allow more offerings or regions, and "
        f"{AGAIN}.",
    ),
    Reason.CUSTOMER_EXIT: (
        "The program exited with another code than 0, or died by a signal of its own.",
        "Look at exitCode and signal. What the program printed is not kept: let it write what is "
        "to stay to a place of its own. restart.maxRetries lets it be tried again; to run it once "
        f"more now, {AGAIN}.",
    ),
    Reason.OUT_OF_MEMORY: (
        "The program went over the container's memory limit and was killed.",
        f"Ask for more memory in resources.memoryGiB, and {AGAIN}.",
    ),
    Reason.DEADLINE_EXCEEDED: (
        "The program ran longer than limits.maxDurationSeconds.",
        f"Give it more time in limits.maxDurationSeconds, and {AGAIN}.",
    ),
    Reason.IMAGE_PULL_FAILED: (
        "The image does not exist, may not be read, or is for another architecture.",
        f"Correct the image's name, its credentials or its architecture, and {AGAIN}.",
    ),
    Reason.START_FAILED: (
        "The program could not be started: its command, a mount or a secret is missing.",
        f"Correct the command, the mounts or the secrets in its manifest, and {AGAIN}.",
    ),
    Reason.RESTORE_FAILED: (
        "The checkpoint is there, but the program's own restore step failed.",
        "What the program printed is not kept: let its restore step write what is to stay to a "
        f"place of its own. To start afresh, without the checkpoint, {AGAIN}.",
    ),
    Reason.CHECKPOINT_UNAVAILABLE: (
        "A committed checkpoint could not be fetched, or its content was not what was stored.",
        "Nothing: the slot goes on from an older checkpoint, and this Attempt is not charged for "
        "it.",
    ),
    Reason.INTERNAL_ERROR: (
        "Nodus itself failed: a fault, an outage of the control plane, or of a store of its own.",
        "Nothing: the slot is tried again, and what was lost is not charged.",
    ),
    Reason.STOPPED: (
        "Someone stopped or deleted the workload.",
        f"Nothing, if that was wanted; to run it again, {AGAIN}.",
    ),
    Reason.SUSPENDED: (
        "Someone suspended the workload.",
        "Run `nodus resume OWNER` to go on from the last checkpoint.",
    ),
    Reason.UNFUNDED: (
        "The project's funds did not cover more running time.",
        "Have funds added. With autoResume it goes on by itself once they are there; without it, "
        f"{AGAIN}.",
    ),
    Reason.MAX_COST_REACHED: (
        "The workload's cost came up to limits.maxCostUSD.",
        f"Raise limits.maxCostUSD, if the work is worth it, and {AGAIN}.",
    ),
    Reason.RELEASED: (
        "The Attempt was no longer needed: fewer workers, idle, its gang restarted, or its Job "
        "decided.",
        "Nothing.",
    ),
}

_RULED_OUT = {
    RejectionCode.ACCELERATOR_MISMATCH: (
        "It has another accelerator, or has one where none was asked for.",
        "Ask for an accelerator that is offered: `nodus offerings list`.",
    ),
    RejectionCode.ACCELERATOR_COUNT_MISMATCH: (
        "It has another number of accelerators.",
        "Ask for a number that is offered: `nodus offerings list`.",
    ),
    RejectionCode.ACCELERATOR_MEMORY_TOO_SMALL: (
        "Its accelerators have less memory than asked for.",
        "Ask for less memory an accelerator, or allow larger classes.",
    ),
    RejectionCode.ARCHITECTURE_MISMATCH: (
        "Its processors are of another architecture.",
        "Ask for the architecture that is offered, or build the image for both.",
    ),
    RejectionCode.CPU_TOO_SMALL: ("It has fewer processors than asked for.", "Ask for fewer."),
    RejectionCode.MEMORY_TOO_SMALL: ("It has less memory than asked for.", "Ask for less."),
    RejectionCode.DISK_TOO_SMALL: ("It has less disk than asked for.", "Ask for less."),
    RejectionCode.GANG_UNSUPPORTED: (
        "It has no fast network between machines, which a gang needs.",
        "Allow classes that have one, or run without a gang.",
    ),
    RejectionCode.REGION_NOT_ALLOWED: (
        "It is in a region that the workload does not allow.",
        "Allow its region class.",
    ),
    RejectionCode.NOT_ENTITLED: (
        "The class is not open to the project.",
        "Ask an administrator to open it.",
    ),
    RejectionCode.INTERRUPTIBLE_NOT_ALLOWED: (
        "It can be reclaimed, which the workload does not allow.",
        "Allow interruptible capacity.",
    ),
    RejectionCode.INTERRUPTIBLE_REQUIRED: (
        "It cannot be reclaimed, and the workload asks for what can.",
        "Do not require interruptible capacity.",
    ),
    RejectionCode.NOT_IN_ALLOW_LIST: (
        "The workload names other offerings.",
        "Add the class to placement.offerings.",
    ),
    RejectionCode.RATE_ABOVE_LIMIT: (
        "Its rate is above the workload's limit.",
        "Raise the limit on the rate.",
    ),
    RejectionCode.COST_ABOVE_LIMIT: (
        "The predicted cost is above what is left of the workload's limit.",
        "Raise limits.maxCostUSD, or allow cheaper classes.",
    ),
    RejectionCode.DISABLED: (
        "The class is out of use: an operator closed it, or its credentials are not valid.",
        "Wait, or allow other classes.",
    ),
    RejectionCode.QUOTA_EXCEEDED: (
        "The project's quota, or the supplier's, is used up.",
        "Wait until something ends, or ask for more quota.",
    ),
    RejectionCode.RECENTLY_LOST: (
        "The slot lost an Attempt on it within the last 15 minutes.",
        "Wait; it is taken all the same if nothing else is left.",
    ),
    RejectionCode.BACKING_OFF: (
        "It failed to deliver and is left alone for a while.",
        "Wait for the next try, or allow other classes.",
    ),
    RejectionCode.UNHEALTHY: (
        "Too many of its machines have failed lately.",
        "Wait; it is taken all the same if nothing else is left.",
    ),
    RejectionCode.GANG_TOO_LARGE: (
        "It has capacity for some of the gang's ranks only.",
        "Wait, or run with fewer ranks.",
    ),
    RejectionCode.INSUFFICIENT_CAPACITY: (
        "It has no capacity left at the moment.",
        "Wait for the next try, or allow other classes.",
    ),
}

_WAITS = {
    WaitingFor.FUNDS: (
        "The Attempt is queued: the organization's funds do not cover its next piece of running "
        "time.",
        "Have funds added. It goes on by itself once they are there.",
    ),
    WaitingFor.QUOTA: (
        "The Attempt is queued: the project's quota, or the supplier's, is used up.",
        "Wait until something ends, or ask for more quota. It is tried again by itself.",
    ),
    WaitingFor.BACKOFF: (
        "The Attempt is queued: what was tried last did not deliver or did not last, and is left "
        "alone for a while.",
        "Nothing: it is tried again by itself. `nodus explain ATTEMPT` says when and why; allow "
        "other offerings to be sooner.",
    ),
    WaitingFor.GANG: (
        "The Attempt is queued: there is capacity for some ranks of its gang only, and they start "
        "together.",
        "Wait, run with fewer ranks, or allow other offerings.",
    ),
    WaitingFor.CAPACITY: (
        "The Attempt is queued: no offering that it may use has capacity at the moment.",
        "Wait, or allow more offerings or regions: `nodus explain ATTEMPT` says what is missing.",
    ),
    WaitingFor.LOOP: (
        "The Attempt is queued: the scheduler has not come to it yet.",
        "Nothing, for some seconds. If it lasts, see that `nodus up` or `nodus schedule` runs.",
    ),
}

REASONS = registry(
    Code(reason=reason.value, when=when, remedy=remedy) for reason, (when, remedy) in _ENDED.items()
)
"""Every `status.reason` (SC-010)."""

REJECTIONS = registry(
    Code(reason=code.value, when=when, remedy=remedy) for code, (when, remedy) in _RULED_OUT.items()
)
"""Every `explain.rejected[].reason` (SC-310)."""

WAITS = registry(
    Code(reason=wait.value, when=when, remedy=remedy) for wait, (when, remedy) in _WAITS.items()
)
"""Every `nodus.dev/waiting-for` (SC-009a), which the column REASON shows in brackets."""

PAGES = (CODES, REASONS, REJECTIONS, WAITS)
"""All that has a page at `/docs/errors/{Code}`; InternalError has two meanings on one page."""
