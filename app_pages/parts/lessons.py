"""The lessons in the order of the menu: one for each claim that the lab teaches."""

from __future__ import annotations

from app_pages.parts.texts import (
    Table,
    learn_attention,
    learn_bottlenecks,
    learn_experiment,
    learn_fusion,
    learn_graph,
    learn_kv,
    learn_overlap,
    learn_parallelism,
    learn_tensor_parallel,
)

#: Icon and texts by the name of the page's file in app_pages/learn/.
LESSONS: dict[str, tuple[str, Table]] = {
    "bottlenecks": (":material/troubleshoot:", learn_bottlenecks.TEXTS),
    "fusion": (":material/merge:", learn_fusion.TEXTS),
    "attention": (":material/grid_on:", learn_attention.TEXTS),
    "graph": (":material/replay:", learn_graph.TEXTS),
    "kv": (":material/view_module:", learn_kv.TEXTS),
    "tensor_parallel": (":material/call_split:", learn_tensor_parallel.TEXTS),
    "overlap": (":material/layers:", learn_overlap.TEXTS),
    "parallelism": (":material/account_tree:", learn_parallelism.TEXTS),
    "experiment": (":material/science:", learn_experiment.TEXTS),
}
