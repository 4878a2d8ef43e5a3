"""Held-out success of a checkpoint: python examples/evaluate_checkpoint.py CHECKPOINT [ENVIRONMENT]"""

import sys

import agentq

checkpoint, env = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "booking"
found = agentq.evaluate(checkpoint, env, n=20)
print(found)
for episode in found.episodes[:3]:
    print("solved" if episode.success else "failed", f"in {len(episode.steps)} steps:", episode.task.instruction)
