"""ALFWorld's games of our own: household tasks from seeds, for its domain and grammar. Its data set is not needed.

    build/textworld/bin/python benchmarks/worlds_alfworld.py FOLDER [N] [two]

Writes FOLDER/json_2.1.1/train/NUMBER/game.tw-pddl, where ALFWORLD_DATA=FOLDER finds them, and beside it traj_data.json
with what ALFWorld's scripted expert reads. With `two`, tasks ask for two things where a room has two of a kind. Domain
and grammar are those of the package alfworld (make textworld). Rooms, things and goals are drawn here.
"""

import importlib.util
import json
import random
import sys
from pathlib import Path

PLACES = {  # kind: (its type, whether it can be opened)
    "countertop": ("CounterTopType", False),
    "diningtable": ("DiningTableType", False),
    "shelf": ("ShelfType", False),
    "cabinet": ("CabinetType", True),
    "drawer": ("DrawerType", True),
    "fridge": ("FridgeType", True),
    "microwave": ("MicrowaveType", True),
    "sink": ("SinkBasinType", False),
    "garbagecan": ("GarbageCanType", False),
}
TWICE = ("cabinet", "drawer", "shelf")
THINGS = {  # kind: (its type, what can be done to it)
    "apple": ("AppleType", ("cleanable", "heatable", "coolable")),
    "potato": ("PotatoType", ("cleanable", "heatable", "coolable")),
    "egg": ("EggType", ("cleanable", "heatable", "coolable")),
    "mug": ("MugType", ("cleanable", "heatable", "coolable")),
    "plate": ("PlateType", ("cleanable", "heatable", "coolable")),
    "fork": ("ForkType", ("cleanable",)),
    "book": ("BookType", ()),
    "keychain": ("KeyChainType", ()),
}
WORDS = {"": "put a", "cleanable": "put a clean", "heatable": "put a hot", "coolable": "put a cool"}
TASKS = {  # as ALFWorld calls them
    "": "pick_and_place_simple",
    "cleanable": "pick_clean_then_place_in_recep",
    "heatable": "pick_heat_then_place_in_recep",
    "coolable": "pick_cool_then_place_in_recep",
}
DONE = {"cleanable": "isClean", "heatable": "isHot", "coolable": "isCool"}
KEPT = ("countertop", "diningtable", "shelf", "cabinet", "drawer", "garbagecan")  # where things are to be put


def problem(seed: int, two: bool = False) -> "tuple[str, str, dict[str, object]]":
    """The PDDL of a problem, its task in words, and what the scripted expert is told."""
    rng = random.Random(f"alfworld {seed}")
    places = [(kind, n) for kind in PLACES for n in (1, 2)[: 1 + (kind in TWICE)]]
    ids = {place: f"{place[0]}_bar_{place[1]}{'_bar_sinkbasin' if place[0] == 'sink' else ''}" for place in places}
    things = [(kind, n) for kind in rng.sample(sorted(THINGS), 6) for n in range(1, 1 + rng.randint(1, 2))]
    lies = {thing: rng.choice(places) for thing in things}
    pairs = [thing for thing in things if two and thing[1] == 2]
    kind, _ = rng.choice(pairs or things)
    act = rng.choice(["", *THINGS[kind][1]]) if not pairs else ""
    goal = rng.choice([each for each in KEPT if all(lies[thing][0] != each for thing in things if thing[0] == kind)])
    facts = ["(atLocation agent1 loc_start)"]
    for place in places:
        name, (called, opens) = ids[place], PLACES[place[0]]
        facts += [f"(receptacleType {name} {called})", f"(receptacleAtLocation {name} loc_{place[0]}_{place[1]})"]
        facts += [f"(openable {name})"] if opens else []
    for thing, place in lies.items():
        name, (called, allows) = f"{thing[0]}_bar_{thing[1]}", THINGS[thing[0]]
        facts += [f"(objectType {name} {called})", f"(pickupable {name})", f"(inReceptacle {name} {ids[place]})"]
        facts += [f"(objectAtLocation {name} loc_{place[0]}_{place[1]})", *(f"({each} {name})" for each in allows)]
    types = [called for called, _ in THINGS.values()]
    facts += [f"(canContain {PLACES[each][0]} {called})" for each in PLACES for called in types]
    objects = ["agent1 - agent", "loc_start - location"]
    objects += [f"{each} - otype" for each in types] + [f"{called} - rtype" for called, _ in PLACES.values()]
    objects += [f"{kind}_bar_{n} - object" for kind, n in things] + [f"{each} - receptacle" for each in ids.values()]
    objects += [f"loc_{kind}_{n} - location" for kind, n in places]
    wanted = [f"(objectType ?o {THINGS[kind][0]})", f"(receptacleType ?r {PLACES[goal][0]})", "(inReceptacle ?o ?r)"]
    wanted += [f"({DONE[act]} ?o)"] if act else []
    other = f"(objectType ?p {THINGS[kind][0]}) (inReceptacle ?p ?r) (not (= ?o ?p))"
    wanted += [f"(exists (?p - object) (and {other}))"] if pairs else []
    pddl = (
        f"(define (problem own_{seed})\n(:domain alfred)\n(:objects {' '.join(objects)})\n(:init {' '.join(facts)})\n"
        f"(:goal (and (exists (?o - object ?r - receptacle) (and {' '.join(wanted)})))))\n"
    )
    named = {"object_target": THINGS[kind][0], "parent_target": PLACES[goal][0]}
    task_type = "pick_two_obj_and_place" if pairs else TASKS[act]
    told = {"task_type": task_type, "pddl_params": {key: each.removesuffix("Type") for key, each in named.items()}}
    return pddl, f"{'put two' if pairs else WORDS[act]} {kind} in {goal}", told


def main() -> None:
    folder, n = Path(sys.argv[1]) / "json_2.1.1" / "train", int(sys.argv[2]) if len(sys.argv) > 2 else 20
    found = importlib.util.find_spec("alfworld")
    if found is None or not found.submodule_search_locations:
        sys.exit("the package alfworld must be installed in this Python: make textworld")
    logic = Path(found.submodule_search_locations[0]) / "data"
    domain, grammar = (logic / "alfred.pddl").read_text(), (logic / "alfred.twl2").read_text()
    for seed in range(n):
        pddl, task, told = problem(seed, "two" in sys.argv[3:])
        game = folder / f"{seed:04d}" / "game.tw-pddl"
        game.parent.mkdir(parents=True, exist_ok=True)
        made = {"pddl_domain": domain, "grammar": grammar.replace("UNKNOWN GOAL", task), "pddl_problem": pddl}
        game.write_text(json.dumps({**made, "solvable": True}))
        game.with_name("traj_data.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
