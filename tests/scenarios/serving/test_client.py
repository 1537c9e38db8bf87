"""Who sends what when: a client of a closed load, and of conversations."""

from __future__ import annotations

from scenarios.serving.client import Client
from scenarios.serving.requests import Load, Request


def test_a_request_sent_because_another_ended_arrives_when_that_one_ended() -> None:
    """However late the engine looks: at 10 and at 30 a request ended, and at 40 both that came for them are taken."""
    client = Client(Load(tuple(Request(n, 0, 4, 5) for n in range(5)), concurrency=2))
    first = [request for _, request in client.send(0)]
    for request, at in zip(first, (10, 30), strict=True):
        client.ended(request, at)
    assert [(at, request.id) for at, request in client.send(40)] == [(10, 2), (30, 3)]
    assert client.next_ns() is None


def test_a_turn_waits_for_the_one_before_and_for_a_free_place() -> None:
    turns = (Request(0, 0, 4, 5), Request(1, 0, 9, 5, after=0, think_ns=7))
    client = Client(Load(turns, concurrency=1))
    (_, opening), *more = client.send(50)
    assert not more
    client.ended(opening, 20)
    assert client.next_ns() == 27
    assert [at for at, _ in client.send(30)] == [27]
