"""Which batch sizes an engine captures where a deployment does not say: vLLM's list, thinned to the streams there are.

vLLM (0.11.1 on, `_set_cudagraph_sizes`) captures 1, 2, 4, the multiples of 8 below 256 and those of 16 from there on,
up to twice `max_num_seqs`, 512 at most. A graph that is cut at attention (PIECEWISE) holds a stream for each layer and
one more, and vLLM-Ascend (`update_aclgraph_sizes` in vllm_ascend/utils.py, read at v0.11.0, v0.12.0rc1, v0.13.0 and
v0.18.0) takes evenly spaced ones of that list, as many as its streams hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.models.model import Model
from scenarios.settings import Settings as Scenario
from scenarios.speculation import draft_layers

#: Streams that graphs may take, of 2,048 (v0.18.0, vllm_ascend/utils.py: MAX_CAPTURE_SIZE). 0.23 asks for CANN 8.5,
#: which has no such limit (release notes of v0.21.0rc1, #9572).
STREAMS = 1800
#: Largest size that vLLM captures by default, tokens.
LARGEST = 512
#: From here on vLLM's sizes are multiples of 16.
COARSE = 256


def default_sizes(scenario: Scenario) -> tuple[int, ...]:
    """Tokens of the steps that vLLM would capture."""
    engine = scenario.engine
    most = min(2 * engine.max_num_seqs * engine.query_tokens, LARGEST, engine.max_num_batched_tokens)
    return tuple(n for n in (1, 2, 4, *range(8, COARSE, 8), *range(COARSE, most + 1, 16)) if n <= most)


def sizes_in_pieces(scenario: Scenario, model: Model) -> tuple[int, ...]:
    """Tokens of the steps that PIECEWISE captures by default, with HCCL_OP_EXPANSION_MODE as the scenario has it: unset
    where that is auto."""
    is_aiv = scenario.engine.hccl_op_expansion_mode == "AIV"
    return thinned(default_sizes(scenario), sizes_of_streams(scenario, model, is_aiv))


def sizes_of_streams(scenario: Scenario, model: Model, is_aiv: bool) -> int:
    """Sizes that the streams hold in pieces: a graph takes layers + 1 streams, a draft model's in addition. is_aiv:
    with HCCL_OP_EXPANSION_MODE=AIV that many times 1 + the kinds of groups that communicate; with others 40 streams are
    set aside for each, and each counts twice."""
    engine = scenario.engine
    groups = (engine.tensor_parallel_size > 1) + (engine.data_parallel_size > 1)
    drafted = draft_layers(engine, model)
    per_graph = model.layers + 1 + (drafted + 1 if drafted else 0)
    if not is_aiv:
        return int((STREAMS - 40 * groups) / per_graph / (1 + 2 * groups))
    factor = 1 + groups + engine.enable_expert_parallel + scenario.optimizations.overlap.shared_expert_stream
    if model.experts:
        return STREAMS // per_graph // (factor + (engine.data_parallel_size > 1))
    return (STREAMS - factor * per_graph) // per_graph // factor


def thinned(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """`most` of `sizes`, evenly spaced in the list, the smallest and the largest among them; the largest where there is
    room for one."""
    if len(sizes) <= most:
        return tuple(sizes)
    if most < 2:
        return tuple(sizes[-1:])
    step = (len(sizes) - 1) / (most - 1)
    return tuple(dict.fromkeys(sizes[round(i * step)] for i in range(most)))
