"""`booking`: the four checks one by one, the difficulty that the world promises, validation on the server."""

from __future__ import annotations

from typing import Any

import pytest

from agentq import envs
from agentq.envs.booking import several
from agentq.envs.booking.site import BookingSite, new_session
from agentq.envs.booking.tasks import Facts, Reservation, answer, checks, facts, score
from agentq.envs.booking.world import MAX_PAGES, PAGE_SIZE, free_times, is_free, places, search
from agentq.envs.lexicon import DATES, TIMES
from agentq.envs.site import Request, Response, SiteSession
from agentq.types import Split

SEEDS = range(2_000_000_000, 2_000_001_000)
SEATED = envs.task_from_seed("booking", next(seed for seed in SEEDS if facts(seed).seating))
UNSEATED = envs.task_from_seed("booking", next(seed for seed in SEEDS if not facts(seed).seating))


def wanted(want: Facts) -> Reservation:
    """The reservation that `want` asks for."""
    guest = (want.first_name, want.last_name, want.phone, want.email, want.seating)
    return Reservation(want.place.number, want.date, want.time, want.party, *guest)


def sibling(want: Facts) -> int:
    """Another branch."""
    return next(spot.number for spot in places() if spot.name == want.place.name and spot != want.place)


@pytest.mark.parametrize(
    ("field", "check"),
    [
        ("place", "completed"),
        ("date", "date_time"),
        ("time", "date_time"),
        ("party", "party"),
        ("first_name", "guest"),
        ("last_name", "guest"),
        ("phone", "guest"),
        ("email", "guest"),
        ("seating", "guest"),
    ],
)
def test_checks_fail_alone_when_one_thing_is_wrong(field: str, check: str) -> None:
    want = facts(SEATED.seed)
    right = wanted(want)
    assert all(checks({"reservations": (right,)}, SEATED).values())
    assert score({"reservations": (right,)}, SEATED) == (1.0, True)
    other: Any = {"place": sibling(want), "time": next(t for t in TIMES if t != want.time), "date": "May 0"}.get(
        field, "x"
    )
    wrong = {"reservations": (right._replace(**{field: other}),)}
    assert [name for name, holds in checks(wrong, SEATED).items() if not holds] == [check]
    assert score(wrong, SEATED) == (0.0, False)


def test_checks_need_exactly_one_reservation() -> None:
    right = wanted(facts(SEATED.seed))
    assert not any(checks({"reservations": ()}, SEATED).values())
    twice = checks({"reservations": (right, right)}, SEATED)
    assert twice == {"date_time": True, "party": True, "guest": True, "completed": False}


def test_right_time_is_the_first_choice_if_free_else_the_second() -> None:
    taken = 0
    for seed in SEEDS:
        want = facts(seed)
        spot = (want.place.number, want.date)
        first_free = is_free(*spot, want.first_choice, want.party)
        assert want.time == (want.first_choice if first_free else want.second_choice)
        assert want.second_choice in free_times(*spot, want.first_choice, want.party)
        taken += not first_free
    assert taken / len(SEEDS) >= 0.30


def test_taken_first_choice_as_if_free_fails_the_time_check() -> None:
    task = envs.task_from_seed("booking", next(s for s in SEEDS if facts(s).time != facts(s).first_choice))
    want = facts(task.seed)
    made = wanted(want)._replace(time=want.first_choice)
    assert not checks({"reservations": (made,)}, task)["date_time"]


def test_world_has_near_identical_names_many_branches_and_second_pages() -> None:
    spots = places()
    names = {spot.name for spot in spots}
    assert 850 <= len(spots) <= 1100 and 200 <= len(names) <= 260
    branches = [sum(spot.name == name for spot in spots) for name in names]
    assert sum(count >= 2 for count in branches) / len(branches) > 0.9 and max(branches) == 7
    near = [any(len(set(name.split()) & set(other.split())) == 2 for other in names) for name in names]
    assert sum(near) / len(near) > 0.9
    assert len({(spot.name, spot.area) for spot in spots}) == len(spots)
    ranks = [search(facts(seed).place.name).index(facts(seed).place) for seed in SEEDS]
    assert sum(rank >= PAGE_SIZE for rank in ranks) / len(ranks) >= 0.20


def test_search_puts_the_exact_name_first_then_names_by_shared_words() -> None:
    for spot in places()[:100]:
        found = search(spot.name.upper())
        shared = [len(set(spot.name.split()) & set(other.name.split())) for other in found]
        assert shared == sorted(shared, reverse=True) and shared[0] == 3 and spot in found
        assert len(found) <= PAGE_SIZE * MAX_PAGES
    assert search("nothing of this") == ()


def test_defaults_are_never_already_all_right() -> None:
    for seed in SEEDS:
        want = facts(seed)
        assert (want.date, want.first_choice, want.party) != want.place.defaults


def test_instruction_and_answers_state_every_fact_as_the_pages_do() -> None:
    for seed in SEEDS[:200]:
        task, want = envs.task_from_seed("booking", seed), facts(seed)
        said = (want.place.name, want.place.area, want.date, want.first_choice, want.second_choice, want.party)
        for value in (*said, want.guest, want.phone, want.email, want.seating):
            assert value in task.instruction
    want = facts(SEATED.seed)
    assert answer(SEATED, "What is the email ?") == f"email {want.email}"
    assert answer(SEATED, "time?") == f"{want.first_choice} or else {want.second_choice}"
    assert answer(SEATED, "what now") == "please go on with what I said"


def post(session: SiteSession, want: Facts, **changed: str) -> Response:
    """Send the details form with `changed` fields."""
    form = {"date": want.date, "time": want.time, "party": want.party, "first": want.first_name, "last": want.last_name}
    form |= {"phone": want.phone, "email": want.email, "seating": want.seating, "agree": "yes"} | changed
    path = f"/place/{want.place.number}/book"
    return BookingSite().handle(Request("POST", path, {key: value for key, value in form.items() if value}), session)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"first": ""}, "First name is required"),
        ({"last": " "}, "Last name is required"),
        ({"phone": "5550134"}, "Phone is not valid"),
        ({"email": "ann at mail"}, "Email is not valid"),
        ({"seating": ""}, "Seating is required"),
        ({"seating": "Roof"}, "Seating is required"),
        ({"agree": ""}, "I agree is required"),
    ],
)
def test_site_refuses_incomplete_details_with_one_alert_and_keeps_the_rest(
    changed: dict[str, str], problem: str
) -> None:
    session, want = new_session(), facts(SEATED.seed)
    response = post(session, want, **changed)
    assert (response.status, session["reservations"]) == (422, ())
    assert response.html.count('role="alert"') == 1 and f'<p role="alert">{problem}</p>' in response.html
    kept = want.email if "email" not in changed else want.phone
    assert f'value="{kept}"' in response.html


def test_site_books_once_a_form_and_stores_what_was_sent() -> None:
    session, want = new_session(), facts(SEATED.seed)
    assert post(session, want).location == "/done"
    assert session["reservations"] == (wanted(want),)
    unseated, want = new_session(), facts(UNSEATED.seed)
    post(unseated, want, seating="Bar")
    assert unseated["reservations"] == (wanted(want),), "a branch that does not ask keeps no seating"


def test_site_refuses_taken_tables_and_unknown_values() -> None:
    session, want = new_session(), facts(SEATED.seed)
    number = want.place.number
    taken = next(t for d in DATES for t in TIMES if d == want.date and not is_free(number, d, t, want.party))
    refused = post(session, want, time=taken)
    assert refused.status == 400 and "This table is taken" in refused.html
    assert post(session, want, party="0").status == 400
    assert BookingSite().handle(Request("GET", "/done"), session).status == 404
    assert session["reservations"] == ()


def test_wrong_branch_booked_by_the_expert_of_another_task_does_not_count() -> None:
    env, task = envs.make("booking"), envs.task("booking", Split.TEST, 0)
    other = envs.task("booking", Split.TEST, 1)
    env.reset(task)
    while True:
        result = env.step(envs.expert("booking")(other, env).env_action)
        if result.terminated:
            break
    assert len(env.session["reservations"]) == 1 and not result.success and result.reward == 0.0


SEVERAL = envs.task("booking/several", Split.TEST, 0)


def test_several_reservations_have_one_guest_and_different_places() -> None:
    many = list[int]()
    for seed in (*SEEDS, 2_000_001_502):  # the last one draws a place twice
        wants, told = several.facts(seed), several.instruction(seed)
        many.append(len(wants))
        assert len({want.place for want in wants}) == len(wants)
        assert len({(want.guest, want.phone, want.email) for want in wants}) == 1
        for want in wants:
            at = f"{want.place.name} in {want.place.area} for {want.party} on {want.date} at {want.first_choice}"
            assert f"{at} or else {want.second_choice} ." in told
    assert set(many) == {2, 3} and 450 < many.count(3) < 550


def test_several_reservations_must_each_be_right_and_in_order() -> None:
    right = tuple(map(wanted, several.facts(SEVERAL.seed)))
    assert several.score({"reservations": right}, SEVERAL) == (1.0, True)
    for wrong in ((), right[:-1], right[::-1], (*right, right[-1]), (right[0], *right)):
        assert several.score({"reservations": wrong}, SEVERAL) == (0.0, False)
    for i, reservation in enumerate(right):
        for field in ("place", "date", "time", "party", "first_name", "last_name", "phone", "email", "seating"):
            value: Any = -1 if field == "place" else "x"
            broken = {"reservations": (*right[:i], reservation._replace(**{field: value}), *right[i + 1 :])}
            failed = [name for name, holds in several.checks(broken, SEVERAL).items() if not holds]
            assert failed == [("first", "second", "third")[i]]


def test_each_page_says_how_many_reservations_there_are() -> None:
    site, right = BookingSite(), wanted(facts(SEATED.seed))
    for made, said in enumerate(("<nav>\n</nav>", ">Your reservation<", ">Your 2 reservations<")):
        page = site.handle(Request("GET", "/"), {"reservations": (right,) * made}).html
        assert said in page


def test_the_user_answers_for_all_reservations_in_their_order() -> None:
    wants = several.facts(SEVERAL.seed)
    assert several.answer(SEVERAL, "which date?") == " ; ".join(dict.fromkeys(f"date {want.date}" for want in wants))
    assert several.answer(SEVERAL, "phone?") == f"phone {wants[0].phone}"
