"""Makes the embedded base model: tokenizer, pretraining exercises (no expert), few demonstrations. `agentq base` runs it."""
