"""Data-parallel replicas over several servers: what vLLM wants to know on the first one and on each further one.

As vLLM-Ascend's pages on several nodes start them: every server runs the same command with its own share of replicas
(--data-parallel-size-local) and the first one's address and port; further ones are headless and say which replica is
their first. A replica that does not fit one server is joined otherwise (Ray, or --nnodes), which is said, not written.
"""

from __future__ import annotations

from sim.predict.steps import Case

#: The port that the replicas meet at, as those pages have it.
RPC_PORT = 13389


def replicas_a_server(case: Case) -> int:
    """How many replicas one server holds, 0 where one does not fit."""
    engine = case.scenario.engine
    return case.hardware.collective.dies_per_server // (engine.tensor_parallel_size * engine.pipeline_parallel_size)


def flags_of_servers(case: Case) -> dict[str, str | None]:
    """Flags of the first server; none where all replicas are on it."""
    local = replicas_a_server(case)
    if not 0 < local < case.scenario.engine.data_parallel_size:
        return {}
    return {
        "--data-parallel-size-local": str(local),
        "--data-parallel-address": "$SERVER0",
        "--data-parallel-rpc-port": str(RPC_PORT),
    }


def notes_of_servers(case: Case) -> list[str]:
    """What the further servers run."""
    local, replicas = replicas_a_server(case), case.scenario.engine.data_parallel_size
    if local >= replicas:
        return []
    engine, dies = case.scenario.engine, case.hardware.collective.dies_per_server
    if local == 0:
        each = engine.tensor_parallel_size * engine.pipeline_parallel_size
        return [
            f"a replica has {each} dies and a server {dies}: its servers are joined by Ray or --nnodes, not given here"
        ]
    further, rest = -(-replicas // local) - 1, replicas % local
    which = "the second server runs" if further == 1 else f"server n of 1 to {further} runs"
    start = str(local) if further == 1 else f"{local} x n"
    last = f", the last one with --data-parallel-size-local {rest}" if rest else ""
    more = f"--headless --data-parallel-start-rank {start}{last}"
    return [f"SERVER0 is the first server's address; {which} the same with {more}"]
