"""How fast is it? `nodus bench`: the product against yardsticks, as ratios within one run.

Decision 1. Ratios, not seconds. Context: machines are shared and noisy. Choice: each round
measures the yardstick and the product one after the other, on the same machine and the same
Postgres; what counts is the median of the rounds' ratios. Cost: absolute figures are shown,
but compare only within one run.

Decision 2. The product is measured whole: a real `nodus serve` process, real TLS, the real
publish. Only the scheduler's loop is left out, whose passes would hide the delay of the feed.
"""

from nodus_api.bench.areas import AREAS, STORAGE, measure
from nodus_api.bench.report import NotMeasured, Report

__all__ = ["AREAS", "STORAGE", "NotMeasured", "Report", "measure"]
