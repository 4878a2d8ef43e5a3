"""Train with TRL on an export in one of its formats: python examples/train_with_trl.py ROWS.jsonl CHECKPOINT OUT"""

import sys

import torch
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

if len(sys.argv) != 4:
    sys.exit(__doc__)
file, checkpoint, out = sys.argv[1:]
rows = load_dataset("json", data_files=file, split="train")
Config, Trainer = (DPOConfig, DPOTrainer) if "chosen" in rows.column_names else (SFTConfig, SFTTrainer)
words = {"max_steps": 20, "per_device_train_batch_size": 4, "learning_rate": 1e-4, "logging_steps": 5}
settings = Config(out, use_cpu=not torch.cuda.is_available(), bf16=torch.cuda.is_available(), **words)
trainer = Trainer(checkpoint, args=settings, train_dataset=rows)
trainer.train()
trainer.save_model(out)
