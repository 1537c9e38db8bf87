"""Lesson: a graph is for a shape. What finds its key in the cache of graphs is replayed; a new shape is captured or
compiled first, or padded to one that is there. A hit's time is not that of every request.
"""

from __future__ import annotations

from dataclasses import dataclass

from app_pages.learn.cases import case
from scenarios.batches import capture_sizes
from sim.predict.predict import predict
from sim.predict.steps import Case

GRAPHS = ("aclgraph", "npugraph_ex", "ge_graph")


@dataclass(frozen=True, slots=True)
class Cost:
    """One graph mode, ms: a step op by op and replayed, what the first run takes more, and one more shape."""

    graph: str
    eager_ms: float
    replay_ms: float
    cold_ms: float
    new_shape_ms: float
    shapes: int

    def total_ms(self, steps: int, new_shapes: int) -> float:
        """A run of `steps` steps that meets `new_shapes` shapes that no graph was made for."""
        return self.cold_ms + new_shapes * self.new_shape_ms + steps * self.replay_ms

    def paid_back(self, new_shapes: int) -> int | None:
        """Steps after which it has taken no longer than op by op, None where it never does."""
        saved = self.eager_ms - self.replay_ms
        return -int(-(self.cold_ms + new_shapes * self.new_shape_ms) // saved) if saved > 0 else None


def deployment(model: str, hardware: str, graph: str, batch: int) -> Case:
    """A decode step. Raises ScenarioError where it is refused."""
    return case(f"model={model}", f"hardware={hardware}", f"optimizations.graph={graph}", f"workload.batch={batch}")


def cost(model: str, hardware: str, graph: str, batch: int) -> Cost:
    """What a graph mode costs and saves."""
    eager = predict(deployment(model, hardware, "eager", batch))
    replayed = predict(deployment(model, hardware, graph, batch))
    cold = replayed.cold_start
    return Cost(
        graph,
        eager.step.total_ns / 1e6,
        replayed.step.total_ns / 1e6,
        cold.compile_ms + cold.capture_ms,
        cold.recapture_ms,
        cold.shapes,
    )


def padded_to(model: str, hardware: str, batch: int) -> int:
    """The captured size that a batch is padded to; the batch itself beyond the largest."""
    sizes = capture_sizes(deployment(model, hardware, "aclgraph", 1).scenario.engine)
    return min((size for size in sizes if size >= batch), default=batch)
