"""TextWorld in the other Python: games played by lines of text.

`textworld/ROOMS.OBJECTS.QUEST`, such as `textworld/3.5.3`: games made from seeds by its own generator, with so many
rooms and objects, and a quest of so many steps. They are kept in `$XDG_CACHE_HOME/agentq/textworld`, since making one
takes seconds.

`alfworld/SPLIT`, such as `alfworld/valid_seen`: the games of ALFWorld below
`$ALFWORLD_DATA/json_2.1.1/SPLIT`, where `alfworld-download` puts them. A seed chooses one, counted around.

The reward is 1 when the quest is done. The expert is TextWorld's own way to the end. For ALFWorld it is its scripted
one, which looks for things as a player has to; where a game lacks its `traj_data.json` it is the planner, which knows
where they are.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentq.errors import ConfigError, MissingExtra

_NAME = re.compile(r"textworld/([1-9]\d?)\.([1-9]\d?)\.([1-9]\d?)")
_STATUS = re.compile(r"\n>[^\n]*(?:\n\s*)?(?:-=[^\n]*=-[^\n]*)?\s*$")  # the line of the interpreter at the end
_IN_SIGHT = re.compile(r"\ba ([a-z]+ \d+)(?=[,.])")  # of ALFWorld: "On the shelf 1, you see a mug 2, and a book 1."
_SPLIT_SIZE = 1_000_000_000  # seeds per split


class _Games:
    """What both kinds have in common. Subclasses define `reset` and `expert`."""

    language, keeps_pages = "text", True

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._textworld: Any = importlib.import_module("textworld")
        except ImportError as error:
            raise MissingExtra(f"{name} needs the package textworld in this Python ({error}): make textworld") from None
        self._env: Any = None
        self._state: Any = None

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        """Say a line."""
        if command == "STOP":
            return {"text": self._page(self._state.feedback), "terminated": True}
        if command != "SAY":
            said = f"a game takes lines, not {command}"
            return {"text": self._page(""), "error_kind": "not_taken", "error_message": said}
        self._state, _, _ = self._env.step(" ".join((text or "").split()))  # a game takes one line
        won, lost = bool(self._state.won), bool(self._state.lost)
        page = self._page(self._state.feedback)
        return {"text": page, "reward": float(won), "terminated": won or lost, "success": won}

    def close(self) -> None:
        """End the game."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _begin(self, file: Path, *told: str) -> None:
        """Start the game in a file."""
        self.close()
        infos = self._textworld.EnvInfos(
            feedback=True, admissible_commands=True, won=True, lost=True, **dict.fromkeys(told, True)
        )
        self._env = self._textworld.start(str(file), request_infos=infos)

    def _page(self, said: str) -> str:
        """What was said, and the lines that the game understands here."""
        lines = (" ".join(line.split()) for line in _STATUS.sub("", said).split("\n"))
        commands = "; ".join(sorted(self._state.admissible_commands))
        return "\n".join([*filter(None, lines), f"You can: {commands}"])


class TextWorldEnv(_Games):
    """The games of one size."""

    def __init__(self, name: str) -> None:
        size = _NAME.fullmatch(name)
        if size is None:
            raise ConfigError(f"a game must be textworld/ROOMS.OBJECTS.QUEST, each 1 to 99; got {name}")
        super().__init__(name)
        self.size = tuple(map(int, size.groups()))
        self.max_steps = 10 + 4 * self.size[2]

    def reset(self, seed: int) -> dict[str, Any]:
        """Begin the game of a seed; its objective is the instruction."""
        self._begin(self._game(seed), "objective", "description", "inventory", "policy_commands")
        self._state = self._env.reset()
        objective = " ".join(self._state.objective.split())
        return {"instruction": objective, "text": self._page(self._state.description)}

    def expert(self) -> dict[str, Any]:
        """The next line on TextWorld's own way to the end."""
        way = self._state.policy_commands
        return {"command": "SAY", "text": way[0]} if way else {"command": "STOP"}

    def fork(self) -> TextWorldEnv:
        """A copy in the same state."""
        twin = TextWorldEnv(self.name)
        if self._env is not None:
            twin._env, twin._state = self._env.copy(), self._state.copy()
        return twin

    def _game(self, seed: int) -> Path:
        """The file of a game, made if there is none."""
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentq" / "textworld"
        game = home / f"{'.'.join(map(str, self.size))}-{seed}.z8"
        if not game.exists():
            home.mkdir(parents=True, exist_ok=True)
            options = self._textworld.GameOptions()
            options.nb_rooms, options.nb_objects, options.quest_length = self.size
            options.seeds = seed
            options.grammar.include_adj = True  # else a locker and a type 0 locker cannot be told apart
            folder = Path(tempfile.mkdtemp(dir=home))
            try:
                options.path = str(folder / "game.z8")
                self._textworld.make(options)
                for made in sorted(folder.glob("game.*"), key=lambda file: file.suffix == ".z8"):  # the game is last
                    made.replace(game.with_suffix(made.suffix))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return game


class AlfWorldEnv(_Games):
    """The games of one split of ALFWorld."""

    max_steps = 50  # as in ALFWorld

    def __init__(self, name: str) -> None:
        super().__init__(name)
        data = Path(os.environ.get("ALFWORLD_DATA") or Path.home() / ".cache" / "alfworld")
        folder = data / "json_2.1.1" / name.partition("/")[2]
        found = sorted(folder.glob("**/game.tw-pddl"))
        self.games = [file for file in found if not re.search("movable|Sliced", str(file))]  # as in ALFWorld
        self._game: Path | None = None  # the one that is open
        self._task = ""
        self._sought: list[str] | None = None  # kinds of things that its task needs; None: it has no scripted expert
        self._scripted: Any = None  # the class of ALFWorld's expert; None: it is not installed
        with contextlib.suppress(ImportError):
            scripted = importlib.import_module("alfworld.agents.expert.handcoded_expert_tw")
            self._scripted = scripted.HandCodedTWAgent
        self._lived: list[tuple[str, Any]] = []  # lines said since the reset, each with the state after it
        if not self.games:
            raise ConfigError(f"ALFWORLD_DATA must have games (alfworld-download); got none in {folder}")

    def close(self) -> None:
        """End the game, and free its planner: each game loads one, 1.5 MB, and TextWorld keeps them all."""
        ended, self._game = self._env, None
        super().close()
        if ended is not None:
            importlib.import_module("fast_downward").close_lib(ended.downward_lib)

    def reset(self, seed: int) -> dict[str, Any]:
        """Begin a game; its task is the instruction."""
        first = seed % _SPLIT_SIZE % len(self.games)
        every = self.games[first:] + self.games[:first]
        game = next((each for each in every if json.loads(each.read_text()).get("solvable", True)), every[0])
        if game != self._game:  # reading one takes a second; search replays from reset
            self._sought = self._sought_in(game)
            self._begin(game, *["facts"] * (self._sought is not None))
            names = readable(self._env._entity_infos)
            for key, info in self._env._entity_infos.items():
                info.name = names[key]
            self._game = game
        self._state = self._env.reset()
        self._lived = [("", self._state)]
        room, _, task = self._state.feedback.partition("Your task is to:")
        self._task = " ".join(task.split())
        return {"instruction": self._task, "text": self._page(room)}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        """Say a line."""
        seen = super().step(command, element, text)
        if command == "SAY":
            self._lived.append((str(text), self._state))
        return seen

    def expert(self) -> dict[str, Any]:
        """The next line of the scripted expert; without one, of the planner's way, which it plans anew at each call."""
        thought = ""
        if self._game is not None and self._sought is not None:
            line, thought = self._scripted_line(self._game), self._thought(self._sought)
        else:
            line = next(iter(self._env._pddl_state.replan(self._env._entity_infos)), "")
        return {"command": "SAY", "text": line, "thought": thought} if line else {"command": "STOP"}

    def _sought_in(self, game: Path) -> list[str] | None:
        """The kinds of things that a game's task needs; None if ALFWorld's expert is not installed or not told."""
        told = game.with_name("traj_data.json")
        if self._scripted is None or not told.exists():
            return None
        needed = json.loads(told.read_text())["pddl_params"]
        return [
            needed[key].lower() for key in ("object_target", "toggle_target") if needed.get(key)
        ]  # a lamp is toggled

    def _scripted_line(self, game: Path) -> str:
        """What ALFWorld's expert says now, having seen all that was said since the reset; "" if it gives up."""
        line, drawn = "look", random.getstate()  # its first line is this one
        random.seed(game.parent.name)  # it chooses among equal things by Python's generator
        try:
            player = self._scripted(max_steps=200)  # as in ALFWorld
            player.reset(str(game))
            player.observe(self._lived[0][1].feedback)
            for said, state in self._lived[1:]:  # it counts on "put", which ALFWorld's games now call "move"
                line = player.act(state, 0, state.won, re.sub("^move ", "put ", said))
            allowed = self._state.admissible_commands
            return line if line in allowed else "look"
        except (NameError, LookupError):  # its ways to say that time is up, or that it knows no further
            return ""
        finally:
            random.setstate(drawn)

    def _thought(self, sought: list[str]) -> str:
        """The task, and of each thing that came into sight whether it is sought: `cool mug : book 1 no , mug 2 yes`.

        Ours: the expert has no thoughts, and a small model that is shown its lines alone takes any thing that it sees.
        """
        things = _IN_SIGHT.findall(self._state.feedback) if len(self._lived) > 1 else []  # at first it sees places
        seen = " , ".join(f"{thing} {'yes' if thing.split()[0] in sought else 'no'}" for thing in things)
        task = self._task.rstrip(".")
        return f"{task} : {seen}" if seen else task


def readable(ids: Iterable[str]) -> dict[str, str]:
    """The names of things as ALFWorld shows them: `sink_bar__minus_01_bar_sinkbasin` is `sinkbasin 1`.

    Those of a kind are counted down in the order of their ids, as ALFWorld's AlfredDemangler does.
    """
    kinds = {}
    for each in ids:
        kind, mark, _ = each.partition("_bar_")
        kinds[each] = (kind + ("basin" if "basin" in each else ""), bool(mark))
    left = Counter(kinds.values())
    names = {}
    for each in sorted(kinds):
        kind, counted = kinds[each]
        names[each] = f"{kind} {left[kinds[each]]}" if counted else each
        left[kinds[each]] -= 1
    return names
