"""Measure a checkpoint on held-out tasks: python examples/evaluate_checkpoint.py CHECKPOINT [ENVIRONMENT]"""

import sys

import agentq

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
checkpoint, env = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "booking"
found = agentq.evaluate(checkpoint, env, n=20)
print(found)
for episode in found.episodes[:3]:
    print("solved" if episode.success else "failed", f"after step {len(episode.steps)}:", episode.task.instruction)
