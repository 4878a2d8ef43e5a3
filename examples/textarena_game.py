"""A game of TextArena for one player as an environment; the agent writes a line per turn.

    pip install textarena
    agentq env check examples/textarena_game.py:Game
    agentq eval CHECKPOINT --env examples/textarena_game.py:Game

Three things are typical of games from elsewhere. They use Python's global random generator, which all sessions of a
process share; here each session has its own state. They show everything that was said so far; here a page has only
what is new, and prompts keep the pages. Their reward may be negative; here it is cut to [0, 1].
"""

import copy
import random
from contextlib import contextmanager

import textarena


class Game:
    name, language, keeps_pages, max_steps = "2048-v0-easy", "text", True, 30

    def reset(self, seed):
        self.dice, self.seen = random.Random(seed).getstate(), ""
        with self.own_dice():
            self.game = textarena.make(self.name)
            self.game.reset(num_players=1, seed=seed)
        return {"instruction": f"Play {self.name}", "text": self.news()}

    def step(self, command, element, text):
        with self.own_dice():
            over = command == "STOP" or self.game.step(text)[0]
        if not over:
            return {"text": self.news()}
        if command == "STOP":
            return {"text": "given up", "terminated": True}
        rewards, told = self.game.close()
        reward = min(max(float(rewards[0]), 0.0), 1.0)
        return {"text": told[0]["reason"], "reward": reward, "success": reward == 1.0, "terminated": True}

    def fork(self):
        return copy.deepcopy(self)

    def news(self):
        before, self.seen = self.seen, self.game.get_observation()[1]
        return self.seen.removeprefix(before)

    @contextmanager
    def own_dice(self):
        others = random.getstate()
        random.setstate(self.dice)
        try:
            yield
        finally:
            self.dice = random.getstate()
            random.setstate(others)
