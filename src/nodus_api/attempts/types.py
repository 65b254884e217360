"""The Attempt on the wire: every field with its alias, its unit and what it tells.

Descriptions are published: in the OpenAPI document, by `kubectl explain`, and by their
first sentence as the description of a table's column. Fields that are not known yet are
left out (SC-017, LW-219).
"""

from pydantic import Field

from nodus_api.attempts.placement_types import AttemptPlacement, AttemptPredicted
from nodus_api.metav1.objects import Int32, Int64, ListMeta, ObjectMeta, Time, WireObject

_V1 = "dev.nodus.v1"


class AttemptGang(WireObject):
    """AttemptGang places the member of a gang: ranks that start together and fall together."""

    schema_name = f"{_V1}.AttemptGang"

    epoch: Int64 = Field(
        description="The gang epoch that this member belongs to, from 1; restarting the gang "
        "begins the next."
    )
    id: str = Field(description="The gang's id, the same for every rank of the Job.")
    rank: Int32 = Field(
        description="This member's rank, from 0. Rank 0 is where the ranks meet (the rendezvous)."
    )
    size: Int32 = Field(description="How many ranks the gang has.")


class AttemptCursor(WireObject):
    """AttemptCursor is how far a restartable Job had come, as its program counts
    (NODUS_CURSOR_COMPLETED and NODUS_CURSOR_TOTAL).
    """

    schema_name = f"{_V1}.AttemptCursor"

    completed: Int64 = Field(description="How many units of work were done.")
    total: Int64 = Field(description="How many units of work there are.")


class AttemptRestore(WireObject):
    """AttemptRestore is the committed checkpoint or snapshot that an Attempt started from."""

    schema_name = f"{_V1}.AttemptRestore"

    cursor: AttemptCursor | None = Field(
        None, description="The progress stored with the checkpoint; only for restartable Jobs."
    )
    seq: Int64 = Field(
        description="The sequence number of the checkpoint or snapshot; they count from 1 in each "
        "slot."
    )


class AttemptSpec(WireObject):
    """AttemptSpec says which place of its owner an Attempt fills, and what it resumed from."""

    schema_name = f"{_V1}.AttemptSpec"

    epoch: Int64 = Field(
        description="Counts the Attempts of a slot from 1. Every replacement gets the next "
        "number, and a report with an older one is refused, so that only one Attempt of a slot "
        "can act."
    )
    gang: AttemptGang | None = Field(
        None, description="Where the Attempt stands in its gang; left out for an Attempt alone."
    )
    restore_from: AttemptRestore | None = Field(
        None,
        alias="restoreFrom",
        description="What the Attempt resumed from; left out when it began afresh.",
    )
    slot: str = Field(
        description="The owner's position that the Attempt fills. A Job's index, 0 for a Sandbox "
        "or a Workspace, the worker of a Function or an Agent, or the words build and import."
    )


class CostSegments(WireObject):
    """CostSegments splits a charge by what the machine was doing; its amounts add up to costUSD."""

    schema_name = f"{_V1}.CostSegments"

    boot_usd: str = Field(
        alias="bootUSD",
        description="Charged from the start of billing until the program started, in USD.",
    )
    covered_by_nodus: tuple[str, ...] | None = Field(
        None,
        alias="coveredByNodus",
        description="The segments (Boot, Running, Restore, Teardown) with time that Nodus paid "
        "for instead of charging it, for example the start of a run that a lost machine ended; "
        "left out when there are none.",
    )
    restore_usd: str = Field(
        alias="restoreUSD",
        description="Charged for bringing a replacement up after capacity was lost, in USD. An "
        "Attempt has either this or bootUSD.",
    )
    running_usd: str = Field(
        alias="runningUSD", description="Charged while the program ran, in USD."
    )
    teardown_usd: str = Field(
        alias="teardownUSD",
        description="Charged from the stop until the machine's deletion was confirmed, in USD, "
        "with the rounding up to the billing increment.",
    )


class AttemptActual(WireObject):
    """AttemptActual is what has been charged for the Attempt so far.

    It may still grow on a finished Attempt, until deletionProvenTime is set. On one that ended
    before billing began, as when it never had a machine, all of it is "0.000000".
    """

    schema_name = f"{_V1}.AttemptActual"

    cost_usd: str = Field(
        alias="costUSD",
        description="The cost charged so far, in USD with 6 decimals. Time that Nodus covers is "
        "not in it.",
    )
    hours: str = Field(description="The time charged so far, in decimal hours with 6 decimals.")
    segments: CostSegments = Field(description="The same cost, split by segment.")


class AttemptCheckpoints(WireObject):
    """AttemptCheckpoints counts the checkpoints of an Attempt whose program has started."""

    schema_name = f"{_V1}.AttemptCheckpoints"

    count: Int64 = Field(description="How many checkpoints were committed during this Attempt.")
    last_seq: Int64 | None = Field(
        None,
        alias="lastSeq",
        description="The sequence number of the last of them; left out when there are none.",
    )
    restore_bytes: Int64 | None = Field(
        None,
        alias="restoreBytes",
        description="How many bytes were restored at the start. May be above 2^53, which "
        "JavaScript's numbers do not hold exactly.",
    )


class AttemptInterruption(WireObject):
    """AttemptInterruption says what ended an Attempt before its program was done."""

    schema_name = f"{_V1}.AttemptInterruption"

    lost_seconds: Int64 = Field(
        alias="lostSeconds",
        description="The work lost since the last committed checkpoint, in seconds.",
    )
    recovery_seconds: Int64 | None = Field(
        None,
        alias="recoverySeconds",
        description="The time until the program of a later Attempt in the slot started, in "
        "seconds; left out until then.",
    )
    time: Time = Field(description="When the Attempt was interrupted.")
    trigger: str = Field(
        description="What interrupted it. PreemptionNotice, ProviderEvidence, HeartbeatLoss, "
        "ReadinessFailed, StartupTimeout, Drill, Funding or User."
    )


class AttemptProgress(WireObject):
    """AttemptProgress is where the scheduler stands with the Attempt, finer than its phase."""

    schema_name = f"{_V1}.AttemptProgress"

    stage: str = Field(
        description="The scheduler's own stage. Pending, Placing, Acquiring, Starting, Running, "
        "Succeeded, Failed, Lost or Stopped."
    )


class AttemptTimings(WireObject):
    """AttemptTimings are an Attempt's milestones, in UTC and whole seconds.

    Billing runs from billingStartTime to deletionProvenTime; commandStartedTime splits
    Boot (Restore, for an Attempt that resumes) from Running.
    """

    schema_name = f"{_V1}.AttemptTimings"

    acquired_time: Time | None = Field(
        None,
        alias="acquiredTime",
        description="When the placement was stored and the capacity asked for.",
    )
    billing_start_time: Time | None = Field(
        None,
        alias="billingStartTime",
        description="When the supplier began to bill the machine.",
    )
    boot_seconds: Int64 | None = Field(
        None,
        alias="bootSeconds",
        description="From acquiredTime to commandStartedTime, in seconds.",
    )
    command_started_time: Time | None = Field(
        None, alias="commandStartedTime", description="When the program started."
    )
    deletion_proven_time: Time | None = Field(
        None,
        alias="deletionProvenTime",
        description="When the machine's deletion was confirmed; nothing changes any more after it.",
    )
    finished_time: Time | None = Field(
        None, alias="finishedTime", description="When the Attempt ended."
    )
    pull_seconds: Int64 | None = Field(
        None,
        alias="pullSeconds",
        description="The part of bootSeconds that pulling the image took, in seconds.",
    )
    queued_time: Time = Field(alias="queuedTime", description="When the Attempt was created.")
    registered_time: Time | None = Field(
        None,
        alias="registeredTime",
        description="When the machine had registered and passed its readiness checks.",
    )
    restore_seconds: Int64 | None = Field(
        None,
        alias="restoreSeconds",
        description="The same as bootSeconds for an Attempt that resumed, restoring included, in "
        "seconds.",
    )
    teardown_seconds: Int64 | None = Field(
        None,
        alias="teardownSeconds",
        description="From finishedTime to deletionProvenTime, in seconds.",
    )


class AttemptStatus(WireObject):
    """AttemptStatus is what is known of an Attempt."""

    schema_name = f"{_V1}.AttemptStatus"

    actual: AttemptActual | None = Field(
        None,
        description="What has been charged; from the start of billing on. A finished Attempt "
        "always has it: all zeros where it ended before billing began.",
    )
    checkpoints: AttemptCheckpoints | None = Field(
        None, description="The checkpoints of this Attempt; from the start of the program on."
    )
    exit_code: Int32 | None = Field(
        None,
        alias="exitCode",
        description="The program's exit code, once it exited. 128 and the signal's number after a "
        "signal.",
    )
    interruption: AttemptInterruption | None = Field(
        None, description="What ended the Attempt early, if anything did."
    )
    phase: str = Field(
        description="The Attempt's phase. Queued, Provisioning, Running, Succeeded, Failed (a "
        "real failure, or capacity that was lost) or Cancelled (a clean stop)."
    )
    placement: AttemptPlacement | None = Field(
        None, description="Where the Attempt was placed and why; from the first try on."
    )
    predicted: AttemptPredicted | None = Field(
        None, description="What the placement expected; as long as there is an offering."
    )
    progress: AttemptProgress = Field(description="The scheduler's own stage of the Attempt.")
    reason: str | None = Field(
        None,
        description="Why the Attempt ended. The class of failure when Failed (for example "
        "Preempted, NodeLost or CustomerExit); Stopped, Suspended, Unfunded, MaxCostReached or "
        "Released when Cancelled.",
    )
    signal: Int32 | None = Field(
        None, description="The number of the signal that ended the program, if one did."
    )
    superseded_by: str | None = Field(
        None,
        alias="supersededBy",
        description="The name of the next Attempt in the slot, once there is one.",
    )
    timings: AttemptTimings = Field(description="When each thing happened and how long it took.")


class Attempt(WireObject):
    """Attempt is one incarnation of a container on a machine: an index of a Job, a run of a
    Sandbox, a session of a Workspace, a worker of a Function or an Agent, an image build or a
    volume import.

    All compute runs as Attempts, and lost capacity is replaced by a new Attempt at the next epoch
    of the same slot. Attempts are read-only and never name a provider. Each carries its owner's
    label, for example nodus.dev/job=train.
    """

    schema_name = f"{_V1}.Attempt"
    group_version_kind = ("nodus.dev", "v1", "Attempt")

    api_version: str = Field(
        "nodus.dev/v1", alias="apiVersion", description="The version of the schema, nodus.dev/v1."
    )
    kind: str = Field("Attempt", description="Always Attempt.")
    metadata: ObjectMeta = Field(
        description="Standard object metadata. The label nodus.dev/KIND names the owner; while "
        "the Attempt is queued, the annotations nodus.dev/waiting-for and "
        "nodus.dev/waiting-message say what it waits for."
    )
    spec: AttemptSpec = Field(
        description="Which place of its owner the Attempt fills, and what it resumed from."
    )
    status: AttemptStatus = Field(description="What is known of the Attempt.")


class AttemptList(WireObject):
    """AttemptList is a list of Attempts, in order of namespace and name."""

    schema_name = f"{_V1}.AttemptList"
    group_version_kind = ("nodus.dev", "v1", "AttemptList")

    api_version: str = Field(
        "nodus.dev/v1", alias="apiVersion", description="The version of the schema, nodus.dev/v1."
    )
    items: tuple[Attempt, ...] = Field(description="The Attempts.")
    kind: str = Field("AttemptList", description="Always AttemptList.")
    metadata: ListMeta = Field(
        description="Standard list metadata; a watch starts from its resourceVersion."
    )
