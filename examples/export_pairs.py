"""Write a run's preference pairs as JSON lines: python examples/export_pairs.py RUN STAGE CHECKPOINT > pairs.jsonl"""

import json
import sys

from transformers import AutoTokenizer

import agentq

if len(sys.argv) != 4:
    sys.exit(__doc__)
run, stage, checkpoint = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
with agentq.RunStore.read(run) as store:
    for tree in store.trees(stage):
        for pair in agentq.SearchResult(tree).pairs():
            texts = pair.chosen[0].prompt_ids, pair.chosen[0].token_ids, pair.rejected[0].token_ids
            prompt, chosen, rejected = (tokenizer.decode(ids) for ids in texts)
            print(json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected, "gap": pair.gap}))
