"""DPO on preference pairs of your own: python examples/dpo_own_pairs.py CHECKPOINT NEW_CHECKPOINT"""

import sys

import agentq

PAIRS = [  # (prompt, better answer, worse answer)
    ("What is the capital of France?", "Paris.", "I would rather not say."),
    ("What is 2 + 3?", "5.", "It depends on what you mean by +."),
]

if len(sys.argv) != 3:
    sys.exit(__doc__)
learner = agentq.Learner.from_checkpoint(sys.argv[1], learning_rate=1e-4)
pairs = [agentq.PreferencePair.from_text(*texts, learner.tokenizer) for texts in PAIRS]
for _ in range(5):
    metrics = learner.step_dpo(pairs, beta=0.1)
    print(f"loss {metrics['loss']:.3f}, margin {metrics['rewards/margins']:+.3f}")
learner.save(sys.argv[2])
