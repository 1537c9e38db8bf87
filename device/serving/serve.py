"""From a scenario with traffic to its served run: what `whatif run --backend` measures of requests."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns

import torch

from device.measure.answer import THREADS, reported
from device.run.backend import Backend
from device.run.host_inputs import Requests
from device.run.session import Options, Session, calibrated
from device.serving.clock import Clock, Kind, SteadyClock, WallClock
from device.serving.engine import Engine
from device.serving.programs import FROM_STEP
from device.serving.texts import Texts
from device.weights.weights import Checkpoint, checkpoint_of
from scenarios.batches import capture_sizes
from scenarios.exchange.served import Deployed, ServedRun
from scenarios.loader import Loaded, folder_of, located, problem
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.schema import Scenario
from scenarios.serving.admission import KvCache
from scenarios.serving.deployment import cache_of, limits_of, longest_tokens
from scenarios.serving.kv_cache import ContiguousCache, blocks_of
from scenarios.serving.requests import Load, Request
from scenarios.serving.scheduler import Scheduler
from scenarios.serving.traces import FILE_KEY
from scenarios.serving.traffic import load_of

#: Prompts from which the scales of INT8 channels are taken.
CALIBRATED_ON = 4
#: Steps of each kind before the first request comes, and the tokens of their prompt.
WARM_UP, WARM_UP_TOKENS = 3, 32
#: Settings of more than one rank, and of what is predicted around the engine of one.
RANKS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
AROUND = ("disaggregated_prefill", "kv_pool")


@dataclass(frozen=True, slots=True)
class Task:
    """What one rank serves."""

    scenario: Scenario
    model: Model
    load: Load

    @property
    def longest(self) -> int:
        """Tokens of the longest request that the engine takes: a row of a contiguous cache."""
        return self.scenario.engine.max_model_len or longest_tokens(self.load)

    @property
    def longest_served(self) -> int:
        """The same, as far as the model's positions go."""
        return min(self.longest, self.scenario.engine.positions(self.model.max_position, self.longest))

    @property
    def openings(self) -> list[Request]:
        """The first requests, of conversations their first turns: what INT8 scales are taken from."""
        return [request for request in self.load.requests if request.after < 0][:CALIBRATED_ON]

    def texts(self) -> Texts:
        return Texts(self.model.vocab, self.scenario.protocol.seed)

    def of_steps(self) -> Scenario:
        """The scenario as its steps see it: without traffic, with room for the longest request."""
        workload = self.scenario.workload.model_copy(
            update={
                "traffic": None,
                "batch": min(len(self.openings), self.scenario.engine.max_num_seqs),
                "input_tokens": max(request.input_tokens for request in self.openings),
                "output_tokens": 1,
                "context_tokens": None,
            }
        )
        engine = self.scenario.engine.model_copy(update={"max_model_len": self.longest_served})
        return self.scenario.model_copy(update={"workload": workload, "engine": engine, "slo": None})

    def touched(self, whole: KvCache) -> KvCache:
        """A cache like `whole`, without the part that this load can never touch: a device need not hold it."""
        running = min(self.scenario.engine.max_num_seqs, len(self.load.requests))
        if isinstance(whole, ContiguousCache):
            return ContiguousCache(min(whole.rows, running), whole.row_tokens)
        size = whole.block_size
        blocks = running * blocks_of(self.longest, size)
        if self.scenario.optimizations.kv.prefix_sharing:  # blocks are kept after their request
            blocks += sum(blocks_of(r.input_tokens + r.output_tokens, size) for r in self.load.requests)
        return type(whole)(min(whole.blocks, blocks), size)


def served(backend: Backend, loaded: Loaded, deployed: Deployed, clock: Kind = "wall") -> ServedRun:
    """Serve the traffic of a scenario on `backend`, which has one rank.

    Raises ScenarioError, with its place, where the scenario has several ranks or its cache no room, and one line where
    the backend lacks what it asks for or memory runs out.
    """
    torch.set_num_threads(THREADS)
    scenario = loaded.scenario
    _refuse(loaded, backend.name)
    base = folder_of(loaded, "model")
    named = f"{located(loaded, FILE_KEY)}: {FILE_KEY}"
    load = load_of(scenario.workload, scenario.protocol.seed, folder_of(loaded, FILE_KEY), named)
    task = Task(scenario, load_model(scenario.model, base), load)
    try:
        whole = cache_of(scenario, deployed.kv_tokens, task.longest)
    except ValueError as error:
        raise problem(loaded, "engine.gpu_memory_utilization", str(error)) from None
    with reported(backend.name):
        checkpoint = checkpoint_of(scenario.model, base, task.model, scenario.protocol.seed)
        session = session_for(backend, task, checkpoint, task.touched(whole))
        kept = SteadyClock(backend, deployed.reference_ns) if clock == "steady" else WallClock()
        return run_of(session, task, kept, whole)


def session_for(
    backend: Backend, task: Task, checkpoint: Checkpoint, allocator: KvCache, options: Options | None = None
) -> Session:
    """A session whose cache is placed by `allocator`, ready to run: INT8 scales taken from some prompts, warmed up."""
    session = Session(task.of_steps(), task.model, backend, checkpoint, options=options, allocator=allocator)
    texts = task.texts()
    calibrated(session, [texts.prompt(request) for request in task.openings])
    warm_up(session)
    return session


def run_of(session: Session, task: Task, clock: Clock, whole: KvCache) -> ServedRun:
    """Serve the load of `task`. whole: the deployment's cache, of which the session may hold a part."""
    backend, allocator = session.backend, session.cache.allocator
    scheduler = Scheduler(limits_of(task.scenario), allocator)
    engine = Engine(session, scheduler, task.texts(), clock, task.longest_served)
    wall, own = perf_counter_ns(), backend.own_ns()
    run = engine.serve(task.load)
    wall, own = perf_counter_ns() - wall - clock.slept_ns, backend.own_ns() - own
    return ServedRun(
        about={
            **backend.describe(),
            "clock": clock.kind,
            "scaled_by": clock.scaled_by,
            "on_cpu_share": min(1.0, own / wall) if wall else 1.0,
            "weights": session.checkpoint.origin,
            "kv_cache_bytes": session.cache.bytes,
        },
        requests=tuple(sorted(run.requests, key=lambda request: request.id)),
        steps=tuple(run.steps),
        rejected=run.rejected,
        preemptions=scheduler.preemptions,
        usage_peak=scheduler.kv.usage_peak * _places(allocator) / max(1, _places(whole)),
        hit_tokens=scheduler.kv.hit_tokens,
        asked_tokens=scheduler.kv.asked_tokens,
    )


def warm_up(session: Session) -> None:
    """Each kind of step some times, on requests that are forgotten again; with captured graphs, each of their sizes."""
    allocator, engine = session.cache.allocator, session.scenario.engine
    prompt = tuple(range(min(WARM_UP_TOKENS, session.model.vocab, session.scenario.longest_request_tokens - 1)))
    captured = session.scenario.optimizations.graph != "eager"
    sizes = [size for size in capture_sizes(engine) if size <= engine.max_num_seqs] if captured else [1]
    size_tokens = len(prompt) + 1
    for size in sizes:
        numbers = tuple(range(-1, -1 - size, -1))
        if size * -(-size_tokens // _place_tokens(allocator)) > _places(allocator):
            break
        for number in numbers:
            allocator.allocate(number, size_tokens)
        for _ in range(WARM_UP):
            session.run("prefill", Requests(numbers[:1], (0,), (prompt,)))
            session.run("decode", Requests(numbers, (len(prompt),) * size, ((0,),) * size))
        for number in numbers:
            allocator.free(number)
    session.backend.synchronize()


def _places(cache: KvCache) -> int:
    return cache.rows if isinstance(cache, ContiguousCache) else cache.blocks


def _place_tokens(cache: KvCache) -> int:
    return cache.row_tokens if isinstance(cache, ContiguousCache) else cache.block_size


def _refuse(loaded: Loaded, backend: str) -> None:
    """Raise ScenarioError, with its place, for what is predicted of requests but not served."""
    engine, optimizations = loaded.scenario.engine, loaded.scenario.optimizations
    if backend not in FROM_STEP and optimizations.graph != "eager" and optimizations.kv.layout == "contiguous":
        what = f"a step captured on {backend} reads the rows of the cache that it was captured on; set it to eager"
        raise problem(loaded, "optimizations.graph", f"{what}, or kv.layout to paged")
    for field in AROUND:
        if getattr(engine, field) is not None:
            where = f"engine.{field}"
            raise problem(loaded, where, f"is predicted, but not served on --backend {backend}; remove it")
    for field in RANKS:
        if (ranks := getattr(engine, field)) > 1:
            where = f"engine.{field}"
            what = f"requests are served by one rank on --backend {backend}, got {ranks}; set it to 1"
            raise problem(loaded, where, what)
