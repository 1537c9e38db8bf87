"""The commands of a split: an engine for each prefill and decode instance, and the proxy before them.

As vLLM-Ascend's tutorials of the tags v0.18.0 and v0.23.0 start them (docs/source/tutorials/features/,
pd_disaggregation_mooncake_single_node.md and _multi_node.md): MooncakeConnectorV1, by which a decode instance pulls the
KV cache, and load_balance_proxy_server_example.py of examples/disaggregated_prefill_v1.
"""

from __future__ import annotations

from dataclasses import replace

from scenarios.records import dataclass
from sim.predict.steps import Case
from sim.sweep.deploy import Version, as_json, command_of, line, settings_of_command
from sim.sweep.disaggregate import Split
from sim.sweep.evaluate import Point

#: Each instance listens for requests on a port of its own, and for the others from a kv_port on, a port a rank.
#: Mooncake takes 1,000 ports an NPU from 20,000 on (tutorials, "kv_port Configuration Guide"): 36,000 is behind 16.
FIRST_PORT, FIRST_KV_PORT, KV_PORTS, PROXY_PORT = 7100, 36000, 100, 8000
PROXY = "load_balance_proxy_server_example.py"


@dataclass(frozen=True, slots=True)
class SplitCommands:
    """instances: one line each, prefill first; proxy: what clients talk to; notes: what the lines cannot say."""

    version: Version
    instances: tuple[str, ...]
    proxy: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an instance runs. server: from 0 on; devices: of that server."""

    server: int
    devices: range


def split_commands(split: Split, version: Version) -> SplitCommands:
    """How to start `split`, instances side by side on servers of as many dies as the hardware has."""
    sides = [split.prefill] * split.prefill_instances + [split.decode] * split.decode_instances
    places = _places([side.choice.cards for side in sides], split.decode.case.hardware.collective.dies_per_server)
    servers = 1 + places[-1].server
    instances = tuple(_instance(split, number, place, version) for number, place in enumerate(places))
    hosts = [_host(place.server, servers) for place in places]
    first = split.prefill_instances
    ports = [str(FIRST_PORT + number) for number in range(len(sides))]
    proxy = (
        f"python {PROXY} --port {PROXY_PORT} --host {hosts[0]} --prefiller-hosts {' '.join(hosts[:first])} "
        f"--prefiller-ports {' '.join(ports[:first])} --decoder-hosts {' '.join(hosts[first:])} "
        f"--decoder-ports {' '.join(ports[first:])}"
    )
    return SplitCommands(version, instances, proxy, _notes(split, servers, version))


def _places(cards: list[int], dies: int) -> list[_Place]:
    """Instances one after the other; one that a server has no room for starts on the next."""
    places: list[_Place] = []
    server = used = 0
    for count in cards:
        if used and used + count > dies:
            server, used = server + 1, 0
        places.append(_Place(server, range(used, used + count)))
        used += count
    return places


def _host(server: int, servers: int) -> str:
    return "127.0.0.1" if servers == 1 else f"$SERVER{server}"


def _instance(split: Split, number: int, place: _Place, version: Version) -> str:
    """The line of one instance; a prefill instance of graphs for decode steps alone has no step to capture."""
    prefills = number < split.prefill_instances
    case = _alone(split.prefill if prefills else split.decode)
    environment, flags = settings_of_command(case, version)
    if prefills and case.scenario.engine.cudagraph_mode in (None, "FULL_DECODE_ONLY"):
        flags = {name: value for name, value in flags.items() if name != "--compilation-config"}
        flags["--enforce-eager"] = None
    sizes = {
        name: {"dp_size": 1, "tp_size": side.choice.tensor_parallel}
        for name, side in (("prefill", split.prefill), ("decode", split.decode))
    }
    connector: dict[str, object] = {
        "kv_connector": "MooncakeConnectorV1",
        "kv_role": "kv_producer" if prefills else "kv_consumer",
        "kv_port": str(FIRST_KV_PORT + KV_PORTS * number),
        "kv_connector_extra_config": sizes,
    }
    if version == "0.18":  # later versions draw it
        connector["engine_id"] = str(number)
    flags = {"--host": "0.0.0.0", "--port": str(FIRST_PORT + number), **flags, "--no-enable-prefix-caching": None}
    flags["--kv-transfer-config"] = as_json(connector)
    devices = ",".join(str(device) for device in place.devices)
    return line({"ASCEND_RT_VISIBLE_DEVICES": devices, **environment}, case.scenario.model, flags)


def _alone(point: Point) -> Case:
    """One instance of a side: a replica of its layout."""
    engine = point.case.scenario.engine.model_copy(update={"data_parallel_size": 1})
    scenario = point.case.scenario.model_copy(update={"engine": engine})
    return replace(point.case, scenario=scenario, model=replace(point.case.model, data_parallel=1))


def _notes(split: Split, servers: int, version: Version) -> tuple[str, ...]:
    notes = [f"{PROXY} lies in examples/disaggregated_prefill_v1 of vLLM-Ascend; Mooncake is installed apart"]
    if servers > 1:
        names = ", ".join(f"SERVER{server}" for server in range(servers))
        notes.append(f"{names} are the servers' addresses; HCCL_IF_IP and the network's card are each server's own")
    return (*notes, *command_of(_alone(split.decode), version).notes)
