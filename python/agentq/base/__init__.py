"""Makes the embedded base model: tokenizer, exercises without an expert, few demonstrations. `agentq base` runs it."""
