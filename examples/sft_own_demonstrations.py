"""SFT on demonstrations of your own: python examples/sft_own_demonstrations.py CHECKPOINT NEW_CHECKPOINT

An episode is an instruction and a list of pages, each with the right answer. The prompts are made as for agentq's
policies, so that the model meets the same ones when it acts.
"""

import sys

import agentq
from agentq.agent.prompts import policy_messages
from agentq.policies.renderer import samples_of_texts

EPISODES = [
    (
        "Find a room for 3 guests",
        [
            ("textbox Guests [1]\nbutton Search [2]", "COMMANDS: TYPE [1] 3\nSTATUS: CONTINUE"),
            ("textbox Guests [1] 3\nbutton Search [2]", "COMMANDS: CLICK [2]\nSTATUS: CONTINUE"),
            ("heading 4 rooms for 3 guests", "COMMANDS: STOP\nSTATUS: DONE"),
        ],
    ),
]

if len(sys.argv) != 3:
    sys.exit(__doc__)
learner = agentq.Learner.from_checkpoint(sys.argv[1], learning_rate=1e-3)
samples = []
for instruction, steps in EPISODES:
    actions: tuple[str, ...] = ()
    for page, answer in steps:
        history = agentq.History(instruction, agentq.Observation(page), actions)
        samples += samples_of_texts(policy_messages(history), [answer], learner.tokenizer)
        actions += (answer,)
for _ in range(10):
    print(f"loss {learner.step_sft(samples)['loss']:.3f}")
learner.save(sys.argv[2])
