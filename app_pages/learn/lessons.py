"""The lessons in the order of the menu: one for each claim that the lab teaches."""

from __future__ import annotations

from app_pages.learn.attention import texts as learn_attention
from app_pages.learn.bottlenecks import texts as learn_bottlenecks
from app_pages.learn.experiment import texts as learn_experiment
from app_pages.learn.fusion import texts as learn_fusion
from app_pages.learn.graph import texts as learn_graph
from app_pages.learn.kv import texts as learn_kv
from app_pages.learn.overlap import texts as learn_overlap
from app_pages.learn.parallelism import texts as learn_parallelism
from app_pages.learn.tensor_parallel import texts as learn_tensor_parallel
from app_pages.parts.texts import Table

#: Icon and texts by the name of its folder.
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
