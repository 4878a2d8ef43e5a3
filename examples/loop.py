"""The loop by hand: search, pairs, DPO, evaluation: python examples/loop.py python/agentq/models/base my-model

Takes under a minute on a CPU. The embedded base has never seen such pages: it mostly learns to press a button.
"""

import random
import sys

import agentq

NAMES = ("Apple", "Basil", "Cedar", "Daisy", "Elder", "Fern", "Grape", "Hazel", "Iris", "Juniper", "Kale", "Lemon")


class Buttons:  # press one of four buttons
    max_steps = 2

    def reset(self, seed):
        draw = random.Random(seed)
        names = draw.sample(NAMES, 4)
        self.right = draw.randrange(4) + 1
        self.page = "\n".join(f"button {name} [{i}]" for i, name in enumerate(names, 1))
        return {"instruction": f"Press {names[self.right - 1]}", "text": self.page}

    def step(self, command, element, text):
        won = command == "CLICK" and element == self.right
        return {"text": self.page, "reward": float(won), "success": won, "terminated": command == "CLICK"}


if len(sys.argv) != 3:
    sys.exit(__doc__)
base, new = sys.argv[1:]
found = [agentq.search(Buttons, task, base, temperature=1.0) for task in range(32)]
pairs = [pair for result in found for pair in result.pairs()]  # each: two actions on one page, a better and a worse one
print(f"{sum(result.success for result in found)} of {len(found)} tasks solved by search, {len(pairs)} pairs")

learner = agentq.Learner.from_checkpoint(base, learning_rate=3e-4)
for _ in range(5):
    for i in range(0, len(pairs), 8):
        metrics = learner.step_dpo(pairs[i : i + 8], beta=0.1, sft_weight=1.0)
    print(f"loss {metrics['loss']:.3f}, margin {metrics['rewards/margins']:+.3f}")
learner.save(new)

before, after = (agentq.evaluate(model, Buttons, n=60) for model in (base, new))  # on tasks that search has not seen
print(f"before: {before}\nafter:  {after}\n{before.compare(after)}")
