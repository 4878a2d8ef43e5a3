"""The trees and episodes of one or several runs, read one at a time."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from agentq.errors import ConfigError, StoreError
from agentq.policies.engine_names import path_in, read_name
from agentq.searching.partial import tree_so_far
from agentq.store.database import connect
from agentq.store.run import PARTIAL, TRAJECTORY, TREE, RunStore
from agentq.store.stages import in_order, or_empty, whole_note
from agentq.viewer.data import Shown, of_episode, of_tree


class ItemPlace(NamedTuple):
    """Where an item is: the number of its run, its stage, its kind (`TREE`, `TRAJECTORY`, or `PARTIAL`) and its key."""

    run: int
    stage: str
    kind: str
    key: str


class Items:
    """The items of runs. A run may be written at the same time."""

    def __init__(self, run_dirs: Sequence[Path]) -> None:
        """Raises StoreError if one is no run directory."""
        self.paths = [path.resolve() for path in run_dirs]
        self.stores = [RunStore.read(path) for path in run_dirs]
        self._watched = [connect(path / "run.sqlite", writable=False) for path in self.paths]
        self._words: dict[int, Callable[[int], str]] = {}

    def close(self) -> None:
        """Release the runs."""
        for store, watched in zip(self.stores, self._watched, strict=True):
            store.close()
            watched.close()

    def versions(self) -> list[int]:
        """A number per run that changes whenever something is written to its database."""
        return [int(database.execute("PRAGMA data_version").fetchone()[0]) for database in self._watched]

    def runs(self) -> list[dict[str, Any]]:
        """Each run's name, its selection rule with what the page computes its scores from, and its stages."""
        found = []
        for path, store in zip(self.paths, self.stores, strict=True):
            search = store.config.get("search", {})
            rule = {"selection": search.get("selection", ""), "c_exp": search.get("c_exp", 0.0)}
            alone = store.config.get("critic", {}).get("model") == "none"
            about = {"name": path.name, **rule, "alpha": 1.0 if alone else search.get("alpha", 1.0)}
            found.append({**about, "stages": store.stages()})
        return found

    def places(self) -> Iterator[ItemPlace]:
        """Every item by run, stage and kind. A tree that is being searched comes as `PARTIAL`."""
        for run, store in enumerate(self.stores):
            for stage in store.stages():
                for kind in (TREE, TRAJECTORY, PARTIAL):
                    yield from (
                        ItemPlace(run, stage, kind, key) for key in sorted(store.keys(stage, kind), key=in_order)
                    )

    def read(self, place: ItemPlace) -> Shown | None:
        """The item; None if it has gone. Raises StoreError if it is damaged."""
        store = self.stores[place.run]
        if place.kind == TRAJECTORY:
            episode = store.trajectory(place.stage, place.key)
            return of_episode(episode) if episode is not None else None
        if place.kind == PARTIAL and (partial := store.partial(place.stage, int(place.key))) is not None:
            try:
                return of_tree(tree_so_far(partial), growing=True)
            except (KeyError, ValueError):  # another version's, which its search would not take up either
                return None
        tree = store.tree(place.stage, int(place.key))  # also if the search has ended since the place was listed
        return of_tree(tree) if tree is not None else None

    def whole(self, place: ItemPlace, lost: list[str]) -> Shown | None:
        """As `read`, but None if it is damaged; `lost` gets a message."""
        return or_empty(lambda: self.read(place), None, lost)

    def pairs(self, run: int, stage: str, lost: list[str]) -> dict[str, Any] | None:
        """The settings by which training takes preference pairs from a stage; None if it takes none.

        If its note is damaged, `lost` gets a message.
        """
        return whole_note(self.stores[run], stage, lost).get("pairs")

    def words(self, run: int) -> Callable[[int], str]:
        """The text of a token of the run's base. Empty texts if its tokenizer is not on this machine."""
        if run not in self._words:
            self._words[run] = _decoder(whole_note(self.stores[run], "base", []).get("name", ""))
        return self._words[run]


def squeeze(value: Any) -> bytes:
    """JSON, compressed as the page's DecompressionStream reads it."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)


def _decoder(base: str) -> Callable[[int], str]:
    try:
        from tokenizers import Tokenizer

        folder = path_in(read_name(base))
        file = folder / "tokenizer.json" if folder is not None else None
        if file is None or not file.is_file():
            return lambda token: ""
        tokenizer = Tokenizer.from_file(str(file))
    except (ImportError, ConfigError, StoreError, OSError):
        return lambda token: ""
    return cache(lambda token: str(tokenizer.decode([token], skip_special_tokens=False)))
