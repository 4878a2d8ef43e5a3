"""A ticket is good in the forest that gave it, and nowhere else."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import numpy as np
import pytest

from agentq._core import Forest
from tests.reference.builders import fan, state

MANY = 40


def busy(**settings) -> tuple[Forest, np.ndarray]:
    """A fan whose children are all in flight, and their tickets."""
    forest = fan(MANY, **settings)
    return forest, forest.ask([0], MANY)[0]


CALLS: dict[str, Callable[[Forest, list[int]], object]] = {
    "tell": lambda forest, tickets: forest.tell(tickets, [1.0] * len(tickets)),
    "tell_one": lambda forest, tickets: forest.tell_one(tickets[-1], 1.0),
    "cancel": lambda forest, tickets: forest.cancel(tickets),
    "expand": lambda forest, tickets: forest.expand(tickets, [2] * len(tickets)),
    "expand_one": lambda forest, tickets: forest.expand_one(tickets[-1], 2),
    "widen": lambda forest, tickets: forest.widen(tickets),
    "extend": lambda forest, tickets: forest.extend(tickets, [0] * len(tickets)),
    "set_terminal": lambda forest, tickets: forest.set_terminal(tickets),
    "nodes_of": lambda forest, tickets: forest.nodes_of(tickets),
}


def assert_refused(forest: Forest, ticket: int, own: int) -> None:
    before = state(forest)
    for name, call in CALLS.items():
        legal = [] if name == "extend" else [own]  # a legal ticket before it must not be acted on
        with pytest.raises(
            ValueError, match=r"a ticket must be in flight in this forest to \w+ it, and is good once; got"
        ):
            call(forest, [*legal, ticket])
    assert state(forest) == before


def test_a_ticket_of_another_forest_is_refused_and_changes_nothing():
    ours, our_tickets = busy()
    theirs, their_tickets = busy()
    for ticket in their_tickets.tolist()[:3]:
        assert_refused(ours, ticket, int(our_tickets[0]))
    theirs.tell(their_tickets, [1.0] * MANY)
    ours.tell(our_tickets, [1.0] * MANY)


def test_a_ticket_outlives_no_forest():
    # the allocator gives the same address again and again, and each forest's table of rollouts is filled alike
    old: list[int] = []
    for _ in range(30):
        forest, tickets = busy()
        assert not set(old) & set(tickets.tolist())
        for ticket in old[-2:]:
            assert_refused(forest, ticket, int(tickets[0]))
        old += tickets.tolist()
        del forest


def test_a_ticket_is_not_good_in_a_copy_of_its_forest():
    forest, tickets = busy()
    copy = Forest.from_bytes(forest.to_bytes())
    own = copy.ask([0], MANY)[0]
    assert not set(own.tolist()) & set(tickets.tolist())
    assert_refused(copy, int(tickets[1]), int(own[0]))
    forest.tell(tickets, [0.5] * MANY)


@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_process_has_the_tickets_so_far_and_gives_others():
    forest, tickets = busy()
    forest.tell(tickets[:20], [0.5] * 20)
    saved = forest.to_bytes()

    def asked() -> list[int]:  # for the same nodes in both processes, so that equal numbers are equal tickets
        return [*Forest.from_bytes(saved).ask([0], 10)[0].tolist(), *forest.ask([0], 10)[0].tolist()]

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            new = asked()
            forest.tell(tickets[20:30], [0.5] * 10)  # a copy of the parent's
            os.write(write, struct.pack("<20Q", *new))
            os._exit(0)
        except BaseException:
            os._exit(1)
    theirs = struct.unpack("<20Q", os.read(read, 160))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not set(theirs) & set(asked())
    for ticket in theirs:
        assert_refused(forest, ticket, int(tickets[20]))


def test_no_ticket_is_given_twice_and_each_fits_a_signed_number():
    forests = [fan(8) for _ in range(3)]
    seen: set[int] = set()
    for _ in range(300):
        for forest in forests:
            tickets = forest.ask([0], 8)[0]
            assert len(tickets) == 8 and (tickets < 2**63).all() and (tickets > 0).all()
            seen.update(tickets.tolist())
            forest.cancel(tickets)
    assert len(seen) == 300 * 3 * 8


def test_lists_of_numbers_up_to_64_bits_are_taken():
    forest = fan(2)
    with pytest.raises(ValueError, match=f"is good once; got {2**64 - 1}"):
        forest.cancel([5, 2**64 - 1][1:])
    with pytest.raises(ValueError, match="is good once; got 5"):
        forest.cancel([5, 2**64 - 1])  # NumPy makes floats of such a list
    with pytest.raises(ValueError, match=f"tickets must be what ask gave; got {2**64}"):
        forest.cancel([2**64])
