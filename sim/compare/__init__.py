"""Two answers side by side: documents of `whatif run` (`results`), and timelines kernel by kernel (`timelines`)."""

from sim.compare.results import AS_FAST, compare_results

__all__ = ["AS_FAST", "compare_results"]
