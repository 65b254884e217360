"""The loop's own numbers, for `/metrics` of the scheduler process (SC-645)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class LoopMetrics:
    """Counters and gauges of one scheduler process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leader = Gauge(
            "nodus_scheduler_leader", "1 while this process leads.", registry=self.registry
        )
        self.passes = Counter(
            "nodus_scheduler_passes", "Passes over the rows.", registry=self.registry
        )
        self.step_seconds = Histogram(
            "nodus_scheduler_step_seconds",
            "How long a step of a pass took.",
            ["step"],
            registry=self.registry,
        )
        self.failed_steps = Counter(
            "nodus_scheduler_failed_steps",
            "Steps that ended by an error of their own.",
            ["step"],
            registry=self.registry,
        )
        self.failed_items = Counter(
            "nodus_scheduler_failed_items",
            "Attempts that a step could not move.",
            ["step"],
            registry=self.registry,
        )
        self.transitions = Counter(
            "nodus_scheduler_transitions",
            "Attempts that entered a stage.",
            ["stage"],
            registry=self.registry,
        )
        self.clamped = Counter(
            "nodus_scheduler_clamped_events",
            "Events raised to their lower neighbour (SC-006).",
            ["event"],
            registry=self.registry,
        )
        self.skewed = Counter(
            "nodus_scheduler_skewed_times",
            "Times told by suppliers more than 5 s outside what is possible (SC-615).",
            ["of"],
            registry=self.registry,
        )
        self.dropped = Counter(
            "nodus_scheduler_dropped_events",
            "Events that contradict their Attempt.",
            ["event"],
            registry=self.registry,
        )
        self.reports = Counter(
            "nodus_scheduler_runner_reports",
            "Runner reports by kind and answer.",
            ["kind", "code"],
            registry=self.registry,
        )
        self.supplier_errors = Counter(
            "nodus_scheduler_supplier_errors",
            "Supplier calls that failed.",
            ["call", "error"],
            registry=self.registry,
        )
        self.closed_offers = Counter(
            "nodus_scheduler_closed_offers",
            "Offers closed because their supplier refused our credentials (SC-617).",
            registry=self.registry,
        )
        self.notices = Counter(
            "nodus_scheduler_notices",
            "Announced reclaims: drained, or cleared because nothing came of them.",
            ["outcome"],
            registry=self.registry,
        )
        self.hedges = Counter(
            "nodus_scheduler_hedges",
            "Second machines asked for because the first was late (SC-340).",
            registry=self.registry,
        )
        self.orphans = Counter(
            "nodus_scheduler_orphans", "Machines found without a use.", registry=self.registry
        )
        self.retired = Counter(
            "nodus_scheduler_retired_attempts",
            "Attempts moved from the API into the archive.",
            registry=self.registry,
        )
        self.log_partitions = Gauge(
            "nodus_scheduler_log_partitions",
            "Partitions that the change log consists of.",
            registry=self.registry,
        )
        self.log_partitions_ahead = Gauge(
            "nodus_scheduler_log_partitions_ahead",
            "Partitions that stand ready after the one of the head; at 0 writes are about to fail.",
            registry=self.registry,
        )
