"""How the embedded base is made: exercises, weights on the right tokens, batches of few shapes, the checkpoint."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from agentq import envs
from agentq.agent.actions import parse_action
from agentq.agent.prompts import LETTERS, policy_messages
from agentq.agent.verdicts import parse_critic_answer
from agentq.base.demonstrations import demonstrate
from agentq.base.exercises import (
    TrainingExample,
    alike,
    ask_example,
    list_example,
    make_example,
    near_misses,
    rank_example,
)
from agentq.base.make import BaseSettings, make_base
from agentq.base.orders import FIRST_TIME, PLACE, SECOND_TIME, page_elements
from agentq.base.pages import collect_pages, page_kind
from agentq.base.tokenizer import train_tokenizer
from agentq.base.training import CHOICE_WEIGHT, WIDTH, Sequence, batches, encode_example, padded_width
from agentq.policies.engine_names import embedded_base
from agentq.policies.transformers_engine import TransformersEngine
from agentq.types import Command, EnvAction, History, Observation, Split
from tests.ranks_factory import two_ranks

PAGE = Observation("heading Results\ntextbox Search [1]: a\nlink Blue Harbor [2]\nlink Home [3]\ncombobox Date [4]")
FACTS = {"Search": "Blue Harbor", "Date": "May 3"}
INSTRUCTION = "Book Blue Harbor on May 3 ."


def test_page_elements_reads_role_id_and_name_without_the_value() -> None:
    assert page_elements(PAGE.text) == [
        ("textbox", 1, "Search"),
        ("link", 2, "Blue Harbor"),
        ("link", 3, "Home"),
        ("combobox", 4, "Date"),
    ]


def test_make_example_asks_for_what_the_page_and_the_question_allow() -> None:
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(400):
        example = make_example(rng, PAGE, INSTRUCTION, FACTS, [PAGE.text, "link Red Harbor [2]", INSTRUCTION], PAGE)
        if example is None:
            continue
        prompt = example.messages[-1]["content"]
        if "PROPOSALS:" in prompt:
            kinds.add("rank")
            listed = [line for line in prompt.split("PROPOSALS:\n")[1].split("\n") if line[-1:] == ")"]
            assert parse_critic_answer(example.answer, [None] * len(listed)) is not None
            continue
        for question, answer in [(prompt, example.answer), *example.more]:
            action = parse_action(answer).env_action
            assert action is not None and action.element in (1, 2, 3, 4)
            if " fill Search" in question or question == "fill Search":
                kinds.add("fill")
                assert action == EnvAction(Command.TYPE, 1, "Blue Harbor")
            if question in ("click Blue Harbor", "click Blue Harbor or else Red Harbor"):
                kinds.add(question)
                assert action == EnvAction(Command.CLICK, 2)
            if question == "click Red Harbor or else Home":
                kinds.add("else")
                assert action == EnvAction(Command.CLICK, 3) and "Red Harbor is missing , click Home [3]" in answer
    assert kinds == {"rank", "fill", "click Blue Harbor", "click Blue Harbor or else Red Harbor", "else"}


def test_list_example_tells_every_link_or_finds_names_that_may_be_missing() -> None:
    names = [f"Blue {noun} {area}" for noun in ("Fox", "Crane") for area in ("Uptown", "Marina", "Westend", "Midtown")]
    groups = alike([*names, "Home"])
    assert groups == ([names[:4], names[4:]], [])
    orders, missing = set(), set()
    for seed in range(80):
        example = list_example(np.random.default_rng(seed), (groups[0],))
        content = example.messages[-1]["content"]
        shown = {name: element for _, element, name in page_elements(content.split("OBSERVATION:\n")[1])}
        question = content.split("QUERY: ")[1].split("\n")[0]
        for asked, answer in [(question, example.answer), *example.more]:
            if asked.startswith("find "):
                wanted = [f"{n} [{shown[n]}]" if n in shown else f"{n} is not here" for n in asked[5:].split(" , ")]
                assert answer == " , ".join(wanted)
                missing |= {" is not here" in answer}
            else:
                assert set(answer.split(" , ")) == {f"click {name} [{element}]" for name, element in shown.items()}
                orders.add(answer)
    assert len(orders) > 60 and missing == {False, True}


def test_make_example_opens_the_place_and_takes_the_time_or_says_what_is_missing() -> None:
    rng = np.random.default_rng(0)
    here = Observation("heading Results\nlink Blue Harbor Uptown [1]\nlink Blue Harbor Marina [2]\nlink Next [3]")
    times = Observation("heading Choose a time\nlink 7:00 PM [1]\nlink 8:00 PM [2]\nlink Change [3]")
    thoughts = {
        (here, "Blue Harbor Marina"): "Blue Harbor Marina [2]",
        (here, "Blue Harbor Westend"): "Blue Harbor Westend is not here , Next [3]",
        (times, "7:00 PM"): "take 7:00 PM [1]",
        (times, "7:30 PM"): "7:30 PM is taken , take 8:00 PM [2]",
    }
    for (page, said), thought in thoughts.items():
        facts = {PLACE: said} if page is here else {FIRST_TIME: said, SECOND_TIME: "8:00 PM"}
        found = [make_example(rng, page, "Book .", facts, [page.text], page) for _ in range(60)]
        answers = {e.answer for e in found if e is not None and e.messages[-1]["content"].find(". open the place") > 0}
        answers |= {e.answer for e in found if e is not None and e.messages[-1]["content"].find(". take the time") > 0}
        acts = {answer for answer in answers if answer.startswith("THOUGHT")}
        assert acts and all(answer.startswith(f"THOUGHT: {thought}\n") for answer in acts)


def test_ask_example_asks_one_page_for_several_instructions() -> None:
    page = Observation("heading Results\nlink Blue Harbor Uptown [1]\nlink Next [2]")
    told = [("Book A .", {PLACE: "Blue Harbor Uptown"}), ("Book B .", {PLACE: "Blue Harbor Marina"}), ("Buy .", {})]
    example = ask_example(np.random.default_rng(0), page, told, ("COMMANDS: CLICK [1]",))
    assert example is not None and "QUERY: Book A . open the place\n" in example.messages[-1]["content"]
    assert "COMMANDS: CLICK [1]\nQUERY" in example.messages[-1]["content"]
    assert example.answer.startswith("THOUGHT: Blue Harbor Uptown [1]\nCOMMANDS: CLICK [1]")
    ((question, answer),) = example.more
    assert question == "Book B . open the place"
    assert answer.startswith("THOUGHT: Blue Harbor Marina is not here , Next [2]\nCOMMANDS: CLICK [2]")
    assert ask_example(np.random.default_rng(0), page, told[2:]) is None


def test_demonstrations_with_slips_still_teach_the_experts_next_step() -> None:
    plain, slipped = demonstrate("booking", 4, 0), demonstrate("booking", 4, 0, slip_rate=0.3)
    assert len(slipped) > len(plain)
    said = {d.text for d in slipped}
    others = [text for d in slipped for text in d.history.actions if text not in said]
    assert others and all(parse_action(text).env_action is not None for text in others)
    assert sum(d.action.command is Command.STOP for d in slipped) >= 3


def test_near_misses_differ_in_the_element_or_in_the_value() -> None:
    rng = np.random.default_rng(0)
    click, put = EnvAction(Command.CLICK, 2), EnvAction(Command.TYPE, 1, "Blue Harbor")
    assert near_misses(rng, PAGE.text, click, ["x"]) == [EnvAction(Command.CLICK, 3)]
    misses = near_misses(rng, PAGE.text, put, ["Red Lantern"])
    assert len(misses) == 3 and all(m.element == 1 and m.command is Command.TYPE for m in misses)


def test_make_example_has_nothing_to_ask_on_a_page_without_elements() -> None:
    rng = np.random.default_rng(0)
    assert make_example(rng, Observation("heading Empty"), INSTRUCTION, FACTS, ["a"], PAGE) is None


def test_rank_example_answers_the_letter_of_the_best() -> None:
    best, others = EnvAction(Command.CLICK, 2), [EnvAction(Command.CLICK, i) for i in (1, 2, 3)]
    seen = set()
    for seed in range(20):
        example = rank_example(np.random.default_rng(seed), History("q", PAGE), best, others)
        assert example is not None
        letter = example.answer[-2]
        assert example.answer.endswith(f"BEST: CLICK [2] ({letter})")
        assert f"CLICK [2] ({letter})" in example.messages[-1]["content"]
        seen.add(letter)
    assert len(seen) > 1 and seen <= set(LETTERS[:3])
    assert rank_example(np.random.default_rng(0), History("q", PAGE), best, [best]) is None


def test_encode_example_weighs_answers_and_end_tokens_one() -> None:
    texts = ["THOUGHT: go COMMANDS: CLICK [2] STOP Book it"] * 9
    tokenizer = train_tokenizer(texts, vocab_size=400, context_tokens=256)
    example = TrainingExample(
        policy_messages(History("Book it", PAGE)), "COMMANDS: STOP", (("again", "COMMANDS: CLICK [2]"),)
    )
    sequence = encode_example(tokenizer, example, np.random.default_rng(0), prompt_weight=0.0)
    learnt = tokenizer.decode(sequence.ids[sequence.weights == 1].tolist())
    assert learnt == "COMMANDS: STOP<|end|>COMMANDS: CLICK<|end|>"
    assert tokenizer.decode(sequence.ids[sequence.weights == CHOICE_WEIGHT].tolist()) == " [2]"
    assert tokenizer.decode(sequence.ids.tolist()).count("<|user|>") == 2
    assert set(sequence.weights.tolist()) == {0.0, 1.0, CHOICE_WEIGHT}


def test_batches_have_one_width_each_and_fill_their_tokens() -> None:
    rng = np.random.default_rng(0)
    lengths = (int(n) for n in itertools.cycle(rng.integers(5, 200, size=97)))
    source = (Sequence(np.zeros(n, dtype=np.int32), np.ones(n, dtype=np.float32)) for n in lengths)
    for batch in itertools.islice(batches(source, batch_tokens=512), 50):
        widths = {padded_width(sequence) for sequence in batch}
        assert len(widths) == 1 and min(widths) % WIDTH == 0
        width = widths.pop()
        assert len(batch) == max(1, 512 // width)
        assert all(len(sequence.ids) - 1 <= width for sequence in batch)


def test_pages_and_demonstrations_use_base_tasks_only() -> None:
    pages = collect_pages("booking", 20, 0)
    assert {task.split for _, task in pages} == {Split.BASE}
    assert len({page.fingerprint for page, _ in pages}) == len(pages)
    assert {page_kind(page) for page, _ in pages} >= {"/", "/find"}
    demos = demonstrate("booking", 2, 0)
    instructions = {envs.task("booking", Split.BASE, i).instruction for i in range(2)}
    assert {d.history.instruction for d in demos} == instructions
    assert all(parse_action(d.text).env_action == d.action for d in demos)


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.*")
def test_make_base_writes_an_ordinary_checkpoint_and_goes_on_after_pretraining(tmp_path: Path) -> None:
    settings = BaseSettings(
        sites=("booking",), hidden_size=32, num_layers=1, walks=4, demonstrations=2, ranked_demonstrations=2,
        pretrain_tokens=13_000, demonstration_tokens=13_000, vocab_size=600,
    )  # fmt: skip
    stages: list[str] = []
    make_base(tmp_path, settings, on_step=lambda stage, _: stages.append(stage))
    assert set(stages) == {"pretrain", "demonstrate"}
    assert json.loads((tmp_path / "base.json").read_text())["settings"]["demonstrations"] == 2
    engine = TransformersEngine(tmp_path)
    out = engine.generate([engine.renderer.encode(policy_messages(History("q", PAGE)))], 2, seeds=[0], max_new_tokens=4)
    assert len(out[0]) == 2
    again: list[str] = []
    make_base(tmp_path, settings, on_step=lambda stage, _: again.append(stage))
    assert set(again) == {"demonstrate"}


def shared_base(out: Path) -> int:
    """In one of two processes: how many steps it took."""
    settings = BaseSettings(
        sites=("booking",), hidden_size=32, num_layers=1, walks=4, demonstrations=2, ranked_demonstrations=2,
        pretrain_tokens=26_000, demonstration_tokens=13_000, vocab_size=600,
    )  # fmt: skip
    stages: list[str] = []
    make_base(out, settings, on_step=lambda stage, _: stages.append(stage))
    return len(stages)


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.*")
def test_processes_make_a_base_together_and_the_first_one_writes(tmp_path: Path) -> None:
    with two_ranks() as workers:
        assert len(set(workers.run(shared_base, tmp_path))) == 1
    assert (tmp_path / "model.safetensors").exists() and not list(tmp_path.glob("**/.partial-*"))
    log = (tmp_path / "training.jsonl").read_text().splitlines()
    assert log and all(json.loads(line)["stage"] in ("pretrain", "demonstrate") for line in log)
    TransformersEngine(tmp_path)


def test_embedded_base_is_small_and_loads_like_any_checkpoint() -> None:
    path = embedded_base()
    assert sum(file.stat().st_size for file in path.iterdir()) < 10_000_000
    engine = TransformersEngine(path)
    assert engine.model.get_input_embeddings().weight.dtype == torch.float32
    assert engine.renderer.tokenizer.chat_template
    task = envs.task("booking", Split.BASE, 0)
    prompt = engine.renderer.encode(policy_messages(History(task.instruction, envs.make("booking").reset(task))))
    ((sample,),) = engine.generate([prompt], 1, seeds=[0], temperature=0.0)
    action = parse_action(engine.renderer.decode(sample.token_ids))
    assert action.env_action is not None and action.env_action.command is Command.TYPE
