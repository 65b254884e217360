"""The words of the domain, and what each word decides.

Source: the Attempt reference; SC-001, SC-002, SC-010, SC-012, SC-101.
"""

from enum import StrEnum


class Stage(StrEnum):
    """`status.progress.stage` (SC-001)."""

    PENDING = "Pending"
    PLACING = "Placing"
    ACQUIRING = "Acquiring"
    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    STOPPED = "Stopped"

    @property
    def terminal(self) -> bool:
        """Whether the stage never changes again."""
        return self in TERMINAL_STAGES


TERMINAL_STAGES = frozenset({Stage.SUCCEEDED, Stage.FAILED, Stage.LOST, Stage.STOPPED})


class Phase(StrEnum):
    """`status.phase`: what a customer sees of the stage (SC-002)."""

    QUEUED = "Queued"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


_PHASES = {
    Stage.PENDING: Phase.QUEUED,
    Stage.PLACING: Phase.QUEUED,
    Stage.ACQUIRING: Phase.PROVISIONING,
    Stage.STARTING: Phase.PROVISIONING,
    Stage.RUNNING: Phase.RUNNING,
    Stage.SUCCEEDED: Phase.SUCCEEDED,
    Stage.FAILED: Phase.FAILED,
    Stage.LOST: Phase.FAILED,
    Stage.STOPPED: Phase.CANCELLED,
}


def phase_of(stage: Stage) -> Phase:
    """Return the phase of a stage; nothing else decides it (SC-002)."""
    return _PHASES[stage]


class Fault(StrEnum):
    """Who caused an end; decides cover (SC-520) and retry (SC-120)."""

    SUPPLIER = "supplier"
    CUSTOMER = "customer"
    NODUS = "nodus"
    USER = "user"


class Reason(StrEnum):
    """`status.reason`: the closed list of SC-010."""

    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    READINESS_FAILED = "ReadinessFailed"
    STARTUP_TIMEOUT = "StartupTimeout"
    UNPLACEABLE = "Unplaceable"
    NO_CAPACITY = "NoCapacity"
    CUSTOMER_EXIT = "CustomerExit"
    OUT_OF_MEMORY = "OutOfMemory"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    START_FAILED = "StartFailed"
    RESTORE_FAILED = "RestoreFailed"
    CHECKPOINT_UNAVAILABLE = "CheckpointUnavailable"
    INTERNAL_ERROR = "InternalError"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"
    UNFUNDED = "Unfunded"
    MAX_COST_REACHED = "MaxCostReached"
    RELEASED = "Released"


_REASONS: dict[Reason, tuple[Stage, Fault]] = {
    Reason.PREEMPTED: (Stage.LOST, Fault.SUPPLIER),
    Reason.NODE_LOST: (Stage.LOST, Fault.SUPPLIER),
    Reason.READINESS_FAILED: (Stage.LOST, Fault.SUPPLIER),
    Reason.STARTUP_TIMEOUT: (Stage.LOST, Fault.SUPPLIER),
    Reason.UNPLACEABLE: (Stage.FAILED, Fault.CUSTOMER),
    Reason.NO_CAPACITY: (Stage.FAILED, Fault.SUPPLIER),
    Reason.CUSTOMER_EXIT: (Stage.FAILED, Fault.CUSTOMER),
    Reason.OUT_OF_MEMORY: (Stage.FAILED, Fault.CUSTOMER),
    Reason.DEADLINE_EXCEEDED: (Stage.FAILED, Fault.CUSTOMER),
    Reason.IMAGE_PULL_FAILED: (Stage.FAILED, Fault.CUSTOMER),
    Reason.START_FAILED: (Stage.FAILED, Fault.CUSTOMER),
    Reason.RESTORE_FAILED: (Stage.FAILED, Fault.CUSTOMER),
    Reason.CHECKPOINT_UNAVAILABLE: (Stage.FAILED, Fault.NODUS),
    Reason.INTERNAL_ERROR: (Stage.FAILED, Fault.NODUS),
    Reason.STOPPED: (Stage.STOPPED, Fault.USER),
    Reason.SUSPENDED: (Stage.STOPPED, Fault.USER),
    Reason.UNFUNDED: (Stage.STOPPED, Fault.CUSTOMER),
    Reason.MAX_COST_REACHED: (Stage.STOPPED, Fault.CUSTOMER),
    Reason.RELEASED: (Stage.STOPPED, Fault.NODUS),
}


def stage_of(reason: Reason) -> Stage:
    """Return the terminal stage that a reason belongs to (SC-010)."""
    return _REASONS[reason][0]


def fault_of(reason: Reason) -> Fault:
    """Return whose fault a reason is (SC-010)."""
    return _REASONS[reason][1]


class Trigger(StrEnum):
    """`status.interruption.trigger` (SC-012)."""

    PREEMPTION_NOTICE = "PreemptionNotice"
    PROVIDER_EVIDENCE = "ProviderEvidence"
    HEARTBEAT_LOSS = "HeartbeatLoss"
    READINESS_FAILED = "ReadinessFailed"
    STARTUP_TIMEOUT = "StartupTimeout"
    DRILL = "Drill"
    FUNDING = "Funding"
    USER = "User"


class WaitingFor(StrEnum):
    """Annotation `nodus.dev/waiting-for` while Queued (SC-009a)."""

    FUNDS = "Funds"
    QUOTA = "Quota"
    BACKOFF = "Backoff"
    GANG = "Gang"
    CAPACITY = "Capacity"
    LOOP = "Loop"


class Profile(StrEnum):
    """`status.placement.profile`: how the five scores are weighted (SC-323)."""

    BALANCED = "Balanced"
    COST = "Cost"
    SPEED = "Speed"


class Market(StrEnum):
    """How capacity is rented; spot is interruptible."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Segment(StrEnum):
    """A billing segment, in the order of `coveredByNodus` (SC-501, SC-521)."""

    BOOT = "Boot"
    RUNNING = "Running"
    RESTORE = "Restore"
    TEARDOWN = "Teardown"


class OwnerKind(StrEnum):
    """What a workload can be (SC-101)."""

    JOB = "Job"
    SANDBOX = "Sandbox"
    WORKSPACE = "Workspace"
    FUNCTION = "Function"
    AGENT = "Agent"
    BUILD = "Build"
    IMPORT = "Import"

    @property
    def label(self) -> str:
        """The owner label's key, for example `nodus.dev/job` (SC-102)."""
        return f"nodus.dev/{self.value.lower()}"


class WorkloadState(StrEnum):
    """What became of a workload."""

    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    STOPPED = "Stopped"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"


class SlotState(StrEnum):
    """The standing decision on a slot (SC-120)."""

    OPEN = "Open"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"
    UNFUNDED = "Unfunded"


class MachineState(StrEnum):
    """A machine row's life (SC-608)."""

    REQUESTED = "Requested"
    GRANTED = "Granted"
    REGISTERED = "Registered"
    RELEASING = "Releasing"
    GONE = "Gone"


class LeaseRole(StrEnum):
    """Whether a machine is an Attempt's first or its hedge (SC-340)."""

    FIRST = "first"
    HEDGE = "hedge"
