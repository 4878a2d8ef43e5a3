"""`agentq run`: one task on a live site."""
