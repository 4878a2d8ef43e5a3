"""The reading base: a tokenizer whose pieces do not depend on the place, exercises that can be read back, training that
goes on where it stopped."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import LlamaForCausalLM  # noqa: E402

from agentq.agent.actions import format_action, parse_action  # noqa: E402
from agentq.agent.verdicts import parse_judgement  # noqa: E402
from agentq.base.demonstrations import Demonstration, demonstrate  # noqa: E402
from agentq.base.exercises import TrainingExample  # noqa: E402
from agentq.base.reading import deciding, judging, training  # noqa: E402
from agentq.base.reading.copying import form  # noqa: E402
from agentq.base.reading.encoding import encode  # noqa: E402
from agentq.base.reading.initial import write_induction_heads  # noqa: E402
from agentq.base.reading.make import ReadingSettings, _config, make_reading  # noqa: E402
from agentq.base.reading.mixture import KINDS, SHARES, exercise_stream, own_texts  # noqa: E402
from agentq.base.reading.progress import answered  # noqa: E402
from agentq.base.reading.renaming import NAMES, WHEN, renamed  # noqa: E402
from agentq.base.reading.seeing import compared, seen  # noqa: E402
from agentq.base.reading.sites import Sites  # noqa: E402
from agentq.base.reading.tokenizer import train_reading_tokenizer  # noqa: E402
from agentq.base.reading.words import Words, reserved  # noqa: E402
from agentq.base.training import CHOICE_WEIGHT, Sequence, encode_example, weighted_loss  # noqa: E402
from agentq.errors import ConfigError, StoreError  # noqa: E402
from agentq.learn.sharding import join  # noqa: E402
from agentq.store.directory import Lock  # noqa: E402
from agentq.types import Command, EnvAction, History, Observation  # noqa: E402
from tests.ranks_factory import two_ranks  # noqa: E402

SMALL = ReadingSettings(hidden_size=64, num_layers=2, vocab_size=800)

TINY = replace(
    SMALL,
    tokenizer_walks=2,
    tokenizer_exercises=20,
    tokenizer_programs=2,
    walks=4,
    demonstrations=2,
    corrected=1,
    ranked_demonstrations=2,
    programs=2,
    held_out=1,
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_reading_tokenizer(own_texts(20, 0), vocab_size=800, context_tokens=1024)


def make_model(tokenizer: Any, settings: ReadingSettings = SMALL) -> Any:
    torch.manual_seed(0)
    model = LlamaForCausalLM(_config(settings, tokenizer))
    write_induction_heads(model)
    return model


def test_a_word_has_the_same_pieces_behind_a_space_and_behind_a_quotation_mark(tokenizer: Any) -> None:
    w = Words(np.random.default_rng(0), held_out=True)
    for word in (w.pseudo() for _ in range(50)):
        alone, spaced = (tokenizer.convert_ids_to_tokens(tokenizer.encode(text)) for text in (f'"{word}"', f" {word}"))
        assert [t for t in alone if t != '"'] == [t for t in (t.removeprefix("Ġ") for t in spaced) if t]
        assert tokenizer.decode(tokenizer.encode(f'Enter "{word}" in [12]')) == f'Enter "{word}" in [12]'
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("61:54")) == ["6", "1", ":", "5", "4"]


def test_training_never_draws_the_words_that_are_kept_for_the_gates() -> None:
    drawn = {Words(np.random.default_rng(seed)).pseudo() for seed in range(300)}
    kept = {Words(np.random.default_rng(seed), held_out=True).pseudo() for seed in range(300)}
    assert not any(map(reserved, drawn)) and all(map(reserved, kept)) and not drawn & kept


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("session", "game")])  # no web commands
def test_an_exercise_is_an_answer_that_can_be_read(kind: str) -> None:
    for seed in range(30):
        example: TrainingExample = KINDS[kind](Words(np.random.default_rng(seed)))
        for answer in (example.answer, *(text for _, text in example.more)):
            assert answer.strip() == answer and answer
            if "COMMANDS:" in answer:
                assert parse_action(answer).env_action is not None and not parse_action(answer).mended
    assert set().union(*(shares for _, shares in SHARES)) >= KINDS.keys()


def test_a_judges_answer_says_yes_only_if_all_is_as_asked() -> None:
    verdicts = set()
    for seed in range(60):
        example = judging.final(Words(np.random.default_rng(seed)))
        findings = parse_judgement(example.answer)
        assert len(findings) == len(example.answer.splitlines())
        for (_, holds), line in zip(findings, example.answer.splitlines(), strict=True):
            asked, shown = line.rsplit(":", 1)[0].split(": ", 1)[1].split(" / ")
            assert holds == (asked == shown)
            verdicts.add(holds)
    assert verdicts == {True, False}


def test_verdicts_are_true() -> None:
    said = set()
    for seed in range(40):
        example = deciding.verdicts(Words(np.random.default_rng(seed)))
        for question, answer in ((example.messages[-1]["content"].split("QUERY: ")[1].split("\n")[0], example.answer),):
            condition, limit = question.split(" : ")[0].rsplit(" ", 1)
            if not limit.isdigit() or " " in answer.split(" , ")[0].rsplit(" ", 1)[0]:
                continue  # dates
            for item in answer.split(" , "):
                n, verdict = item.split(" ")
                under = condition in ("under", "less than", "below", "before")
                over = condition in ("over", "more than", "above", "after")
                fits = int(n) < int(limit) if under else int(n) > int(limit) if over else int(n) <= int(limit)
                assert verdict == ("yes" if fits else "no")
                said.add(verdict)
    assert said == {"yes", "no"}


def test_a_renamed_step_is_the_same_step_with_other_names() -> None:
    w, seen, moved = Words(np.random.default_rng(0)), 0, 0
    for d in [step for site in ("booking", "shop") for step in demonstrate(site, 12, 3)]:
        other = renamed(d, w)
        assert parse_action(other.text).env_action == other.action
        assert (other.action.command, other.action.element) == (d.action.command, d.action.element)
        ids = [re.findall(r"\[(\d+)\]|(\d+) dollars", each.history.observation.text) for each in (d, other)]
        assert ids[0] == ids[1]
        told = other.history.instruction
        moved += sorted(WHEN.findall(told)) != sorted(WHEN.findall(d.history.instruction))
        assert set(WHEN.findall(other.text)) <= set(WHEN.findall(told + other.history.observation.text))
        assert not {word.lower() for word in re.findall("[A-Za-z]+", told)} & NAMES
        for each in (d, other):
            typed = each.action.text is not None and each.action.text in each.history.instruction
            seen += typed
        assert d.action.text is None or (d.action.text in d.history.instruction) == (other.action.text in told)
        for now, before in zip(other.history.actions, d.history.actions, strict=True):
            assert parse_action(now).env_action is not None
            assert len(now.split()) == len(before.split())
    assert seen > 100 and moved > 50


def test_numbers_that_are_sizes_get_other_numbers_and_prices_do_not() -> None:
    page = "text 10 dollars\ntext Sizes 7 , 8 , 9 , 10 , 11\ncombobox Size [2]: 10\nlink Home [10]"
    told = "Find me a pair of canvas boots in brown , size 10 for less than 10 dollars and buy it ."
    action = EnvAction(Command.SELECT, 2, "10")
    text = format_action(action, thought="Size [2] 10")
    d = Demonstration(History(told, Observation(page)), text, action, "Size [2] 10", (EnvAction(Command.CLICK, 10),))
    other = renamed(d, Words(np.random.default_rng(1)))
    size = other.action.text
    assert size is not None and size != "10" and size.isdigit()
    assert f"size {size} for less than 10 dollars" in other.history.instruction
    lines = other.history.observation.text.splitlines()
    assert lines[0] == "text 10 dollars" and lines[2:] == [f"combobox Size [2]: {size}", "link Home [10]"]
    assert lines[1].split(" , ")[3] == size and "Sizes 7 " not in lines[1]
    assert other.thought == f"Size [2] {size}" and other.text == format_action(other.action, thought=other.thought)
    assert other.others == d.others


def test_colors_are_known_after_the_products_page_was_opened() -> None:
    episodes, corrected = list[list[Demonstration]](), 0
    for d in demonstrate("shop", 60, 0, revise=seen):
        if not d.history.actions:
            episodes.append([])
        episodes[-1].append(d)
    for episode in episodes:
        opened = set[str]()
        for d in episode:
            page = d.history.observation.text
            names = {int(i): name for name, i in re.findall(r"^link (.+) \[(\d+)\]$", page, re.MULTILINE)}
            passed = {names[int(i)] for i in re.findall(r"\[(\d+)\] \d+ color no", d.thought)}
            assert passed <= opened
            corrected += bool(passed)
            opened.add(names.get(d.action.element or 0, ""))
        assert episode[-1].history.observation.text.startswith("heading Order complete")
    assert corrected >= 3
    assert any("color no" in d.thought for d in demonstrate("shop", 60, 0))  # the expert itself knows them


def test_corrected_episodes_begin_where_a_product_proves_wrong() -> None:
    plain, more = (Sites.collect(walks=1, acted=2, ranked=1, slip_rate=0.0, seed=0, corrected=n).acted for n in (0, 3))
    added = more[len(plain) :]
    wrong = [d for d in added if "is not here" in d.thought]
    assert more[: len(plain)] == plain and len({d.history.instruction for d in added}) == 3
    assert "is not here" in added[0].thought and len(wrong) >= 3
    assert any("color no" in d.thought for d in added)


def test_similar_names_are_compared_in_turn() -> None:
    ids = {"Blue Fox Diner": 3, "Fox Diner": 4, "Old Fox Diner": 5, "Old Fox Bar": 6}
    assert compared(ids, "Old Fox Diner") == ["Blue [3] no", "Fox [4] no", "Old Fox Diner [5] yes"]
    assert compared(ids, "Old Fox Bar")[2:] == ["Old Fox Diner [5] no", "Old Fox Bar [6] yes"]
    assert compared({"Old Fox": 1, "Old Fox Bar Inn": 2}, "Old Fox Bar") == ["Old Fox [1] no", "Old Fox Bar Inn [2] no"]
    assert compared(ids, "Red Cat") == ["Blue [3] no", "Fox [4] no", "Old [5] no", "Old [6] no"]
    said = Counter[str]()
    for d in demonstrate("booking", 30, 0, revise=seen):
        names = {i: name for name, i in re.findall(r"^link (.+) \[(\d+)\]$", d.history.observation.text, re.MULTILINE)}
        taken = " is taken , take " in d.thought
        for name, element, verdict in re.findall(r"([\w: ]+) \[(\d+)\] (yes|no)\b", d.thought):
            due = d.action.element == int(element)
            name = name.strip()
            assert names[element] == name if verdict == "yes" else names[element].startswith(name)
            assert due if verdict == "yes" else taken or not due
            said[verdict] += 1
        said["taken"] += taken
        said["gone"] += " no , " in d.thought and " is not here , Next" in d.thought
    assert min(said[kind] for kind in ("yes", "no", "taken", "gone")) > 3


def test_fields_that_hold_a_value_from_the_start_are_looked_at() -> None:
    said = Counter[str]()
    for d in demonstrate("booking", 30, 0, slip_rate=0.2, revise=seen):
        page = dict(re.findall(r"^combobox (\w+) \[\d\]: (.+)$", d.history.observation.text, re.MULTILINE))
        looked = re.findall(r"(Date|Time|Party) ([\w: ]+?) (yes|no)\b", d.thought)
        if "Find table" not in d.history.observation.text or d.action.command is Command.GOTO:
            assert not looked
            continue
        for field, value, verdict in looked:
            asked = re.findall(r"\b(?:May|June) \d+|\d:\d\d PM|(?<=for )\d\b|(?<=of )\d\b", d.history.instruction)
            assert page[field] == value and (value in asked) >= (verdict == "yes")
            said[verdict] += 1
        said["found"] += d.thought.endswith(" yes , Find table [4]")
    assert min(said[kind] for kind in ("yes", "no", "found")) > 10


def test_of_several_reservations_the_one_that_is_due_is_repeated() -> None:
    sites = Sites.collect(walks=1, acted=6, ranked=1, slip_rate=0.0, seed=0)
    due = Counter[tuple[int, str]]()
    for d in sites.errands:
        wants = re.findall(r"(?:First|Second|Third) : .+? or else \S+ PM(?: . Seating \w+)?", d.history.instruction)
        made = sum("Complete [" in past for past in d.history.actions)
        about = re.search("EXPLANATION: (.+)", d.text)
        if about and about[1] in ("fill date", "fill time", "fill party", "find table", "pick time", "fill seating"):
            assert d.thought.startswith(f"{wants[made]} , ")
            due[made, "when"] += 1
        elif about and about[1] in ("search name", "run search", "open restaurant", "next page", "go home"):
            assert d.thought.startswith(f"{wants[made].partition(' for ')[0]} , ")
            due[made, "where"] += 1
        else:
            assert not any(want.partition(" in ")[0] in d.thought for want in wants)
    assert len(due) == 6
    words = Words(np.random.default_rng(0))
    past = [sites.errand(words).messages[-1]["content"].count("COMMANDS: ") for _ in range(200)]
    assert max(past) == 19  # of 26 to 50 steps, so that they fit into a short context


def test_free_times_are_compared_with_the_first_choice_and_then_the_second_is_taken() -> None:
    sites = Sites.collect(walks=1, acted=1, ranked=1, slip_rate=0.0, seed=0)
    w, met = Words(np.random.default_rng(0)), Counter[str]()
    for _ in range(40):
        example = sites.slots(w)
        told, _, page = example.messages[-1]["content"].partition("QUERY: ")[2].partition("\nOBSERVATION:\n")
        links = {name: int(i) for name, i in re.findall(r"^link (.+) \[(\d+)\]$", page, re.MULTILINE)}
        for request, answer in [(told, example.answer), *example.more]:
            first, second = re.findall(r"\d:\d\d PM", request)
            due = next((time for time in (first, second) if time in links), "Change")
            action = parse_action(answer).env_action
            assert first != second and action == EnvAction(Command.CLICK, links[due])
            assert ("is taken , take" in answer) is (due == second)
            met[{first: "first", second: "second"}.get(due, due)] += 1
    assert len(met) == 3 and min(met.values()) > 10


def test_a_form_is_thought_through_in_the_order_of_the_instruction() -> None:
    seen_states, w = Counter[str](), Words(np.random.default_rng(4))
    for _ in range(200):
        example = form(w)
        told, _, page = example.messages[-1]["content"].partition("QUERY: ")[2].partition("\nOBSERVATION:\n")
        fields = [line for line in page.splitlines() if line.startswith("textbox")]
        empty = [line for line in fields if line.endswith("]")]
        *states, due = example.answer.partition("\n")[0].removeprefix("THOUGHT: ").split(" , ")
        action = parse_action(example.answer).env_action
        assert action is not None and due.endswith(f"[{action.element}]")
        if action.command is Command.TYPE:
            assert f"[{action.element}]" in empty[0] and action.text is not None and action.text in told
            assert action.text in due
        else:
            assert not empty
        for state in states:
            words, _, verdict = state.rpartition(" ")
            filled = [line for line in fields if ": " in line and line.partition(": ")[2] in words]
            assert verdict == ("yes" if filled else "no")
            seen_states[verdict] += 1
    assert min(seen_states["yes"], seen_states["no"]) > 20


def test_a_ranking_lists_what_a_policy_proposes_beside_the_experts_action() -> None:
    sites = Sites.collect(walks=1, acted=1, ranked=6, slip_rate=0.0, seed=0)
    w = Words(np.random.default_rng(0))
    usual = [value for values in sites.values.values() for value in values]
    hard = 0
    for _ in range(80):
        example = sites.rank(w)
        best = example.answer.split("BEST: ")[1]
        listed = re.findall(r"^(.+) \([A-E]\)$", example.messages[-1]["content"], re.MULTILINE)
        assert listed.count(best) == 1 and len(listed) >= 2
        hard += any(a != best and a.partition("] ")[2] in usual for a in listed)
    assert hard > 20


def test_encoding_is_that_of_the_chat_template(tokenizer: Any) -> None:
    rng, weights = np.random.default_rng(0), set[float]()
    for kind in KINDS.values():
        example = kind(Words(rng))
        ours, theirs = encode(tokenizer, example), encode_example(tokenizer, example, rng, prompt_weight=0.0)
        assert ours.ids.tolist() == theirs.ids.tolist() and ours.weights.tolist() == theirs.weights.tolist()
        weights.update(ours.weights.tolist())
    assert weights == {0.0, 1.0, CHOICE_WEIGHT}


def test_new_models_look_at_the_token_before_and_at_what_followed_the_same_token(tokenizer: Any) -> None:
    model = make_model(tokenizer, ReadingSettings(hidden_size=128, num_layers=2, vocab_size=800))
    model.set_attn_implementation("eager")
    ids = torch.randperm(len(tokenizer))[:20].repeat(2)[None]
    with torch.no_grad():
        first, second = model(ids, output_attentions=True).attentions
    n = torch.arange(1, 40)
    assert first[0, :2, n, n - 1].mean() > 0.5
    later = torch.arange(20, 39)
    assert second[0, :2, later, later - 19].mean() > 3 / 40  # beyond chance; training sharpens it


def test_a_row_of_several_sequences_has_the_loss_of_each_alone(tokenizer: Any) -> None:
    model = make_model(tokenizer)
    batch = next(training.batches(exercise_stream(tokenizer, KINDS, (0,), 0.0, 400)))[:7]
    with torch.no_grad():
        together = training.packed_loss(model, batch).item()
        alone = [(weighted_loss(model, [s]).item(), float(s.weights[1:].sum())) for s in batch]
    assert together == pytest.approx(sum(a * b for a, b in alone) / sum(b for _, b in alone), rel=1e-3)


def test_held_out_answers_of_several_sequences_are_those_of_each_alone(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda _: False)  # where two tokens may be equally likely
    model = make_model(tokenizer)
    words = Words(np.random.default_rng(0))
    batch = [encode(tokenizer, KINDS[name](words)) for name in ("say", "table", "form", "session", "count", "offers")]
    with torch.no_grad():
        guesses = [training.packed_logits(model, [s])[0].argmax(-1).numpy() for s in batch]
    for s, guess in zip(batch[::2], guesses[::2], strict=True):  # these are answered as the model would
        s.ids[1:][s.weights[1:] != 0] = guess
    found = answered(model, batch)
    assert found == [answered(model, [s])[0] for s in batch]
    turns = [int((np.diff((s.weights != 0).astype(int)) == 1).sum()) for s in batch]
    assert [len(each) for each in found] == turns and max(turns) > 1
    assert not any(any(each) for each in found[1::2])


def test_training_goes_on_where_it_was_stopped(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "PART_TOKENS", 2000)
    monkeypatch.setattr(training, "BATCH_TOKENS", 900)

    class Stopped(Exception):
        pass

    def run(out: Path, stop_at: int = 10**9) -> Any:
        out.mkdir(exist_ok=True)
        model = make_model(tokenizer)

        def on_step(metrics: dict[str, Any]) -> None:
            if metrics["tokens"] > stop_at:
                raise Stopped

        training.train_parts(
            model,
            lambda part, tokens, maker: exercise_stream(tokenizer, KINDS, (0, part, maker), tokens, 400),
            out,
            num_tokens=4500,
            learning_rate=1e-3,
            batch_tokens=900,
            after_part=lambda: {"say": 0.5},
            on_step=on_step,
        )
        return model

    whole = run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", stop_at=3000)
    again = run(tmp_path / "stopped")
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    lines = [(tmp_path / name / "training.jsonl").read_text().splitlines() for name in ("whole", "stopped")]
    logs = [[json.loads(line) | {"seconds": 0} for line in each] for each in lines]
    assert logs[0] == logs[1] and len(logs[0]) >= 2 and logs[0][0]["right"] == {"say": 0.5}


def test_makers_take_turns_with_batches_of_their_own() -> None:
    def source(maker: int) -> Iterator[Sequence]:
        while True:
            yield Sequence(np.full(4, maker, dtype=np.int32), np.ones(4, dtype=np.float32))

    made = training.made_batches(source, 10, 3)
    assert [{int(s.ids[0]) for s in next(made)} for _ in range(7)] == [{0}, {1}, {2}, {0}, {1}, {2}, {0}]
    alone = training.made_batches(source, 10, 0)
    assert [len(next(alone)) for _ in range(2)] == [3, 3]


def test_larger_batches_stretch_parts_and_what_is_due(tokenizer: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(training, "PART_TOKENS", 1000)
    monkeypatch.setattr(training, "BATCH_TOKENS", 450)
    asked = []

    def stream(part: int, tokens: float, maker: int) -> Iterator[Sequence]:
        asked.append((part, tokens))
        return exercise_stream(tokenizer, KINDS, (0, part), tokens, 400)

    training.train_parts(
        make_model(tokenizer),
        stream,
        tmp_path,
        num_tokens=4500,
        learning_rate=1e-3,
        batch_tokens=900,
        after_part=dict,
        on_step=lambda _: None,
    )
    ends = [json.loads(line)["tokens"] for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    assert asked == [(end // 2000, end / 2) for end in [0, *ends[:-1]]] and len(asked) > 1 and ends[0] >= 2000


def shared_training(out: Path, tokenizer: Any) -> tuple[list[Any], int]:
    """In one of two processes: the weights in the end, and the tokens of both."""
    training.PART_TOKENS, training.BATCH_TOKENS = 2000, 900
    ranks, seen = join("cpu"), []
    model = make_model(tokenizer)
    training.train_parts(
        model,
        lambda part, tokens, maker: exercise_stream(tokenizer, KINDS, (0, part, ranks.index), tokens, 400),
        out,
        num_tokens=4500,
        learning_rate=1e-3,
        batch_tokens=900,
        after_part=lambda: {"say": 0.5},
        on_step=seen.append,
        ranks=ranks,
    )
    return [p.detach().numpy() for p in model.parameters()], seen[-1]["tokens"]


def test_processes_share_the_training_and_the_first_one_writes(tokenizer: Any, tmp_path: Path) -> None:
    with two_ranks() as workers:
        (weights, tokens), (others, counted) = workers.run(shared_training, tmp_path, tokenizer)
    assert tokens == counted >= 4500
    for ours, theirs in zip(weights, others, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    lines = [json.loads(line) for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    assert lines[-1]["tokens"] == tokens and lines[-1]["step"] <= tokens / 900  # a batch of 900 a step, over both


@pytest.mark.parametrize(("bfloat16", "apart"), [(True, 0.0), (False, 5e-4)])
def test_muon_is_that_of_torch_and_rounds_less_in_float32(
    bfloat16: bool, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda device: bfloat16)
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in ((8, 8), (24, 8), (8, 24))]
    ours, theirs = ([torch.nn.Parameter(x.clone()) for x in start] for _ in range(2))
    settings: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.05, "adjust_lr_fn": "match_rms_adamw"}
    two = training.Muon(ours, **settings), torch.optim.Muon(theirs, **settings)
    for _ in range(3):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        for optimizer in two:
            optimizer.step()
    for p, q, x in zip(ours, theirs, start, strict=True):
        assert (p - q).abs().max() <= apart and (p - x).abs().max() > 5e-3
    singular = torch.linalg.svdvals(training.orthogonal(torch.randn(24, 8), two[0].param_groups[0]).float())
    assert singular.min() > 0.5 and singular.max() < 1.4


def test_the_rate_rises_stays_and_falls() -> None:
    shares = [training.rate_share(done) for done in (0, 0.001, 0.01, 0.2, 0.4, 0.7, 1)]
    assert shares == pytest.approx([0.01, 0.21, 1, 1, 1, 0.5, 0.05])
    assert [training.rate_share(done, 0.8) for done in (0.8, 0.801, 0.88)] == pytest.approx([0.01, 0.21, 0.2])


def test_an_earlier_result_is_trained_on(tmp_path: Path) -> None:
    start, more = tmp_path / "start", tmp_path / "more"
    make_reading(start, replace(TINY, tokens=3000))
    before = {path.name: path.read_bytes() for path in start.iterdir() if path.is_file()}
    steps: list[dict[str, Any]] = []
    settings = replace(TINY, hidden_size=64, tokens=9000)  # the model is that of `start`
    make_reading(more, settings, start=start, on_step=steps.append)
    log = [json.loads(line) for line in (more / "training.jsonl").read_text().splitlines()]
    old = json.loads(before["training.jsonl"].splitlines()[-1])
    assert [line["tokens"] for line in log] == [old["tokens"], steps[-1]["tokens"]]
    assert steps[0]["step"] == old["step"] + 1 and steps[0]["tokens"] > old["tokens"] >= 3000
    assert steps[-1]["tokens"] >= 9000 > steps[-1]["tokens"] - 2 * training.BATCH_TOKENS
    for name in ("tokenizer.json", "config.json"):
        assert (more / name).read_bytes() == before[name]
    assert (more / "model.safetensors").read_bytes() != before["model.safetensors"]
    with pytest.raises(ConfigError, match=rf"--tokens must be more than the {old['tokens']} of .*start; got 3000"):
        make_reading(more, replace(TINY, tokens=3000), start=start)
    with pytest.raises(ConfigError, match=r"--base must be what agentq base reading made; got .* without its train"):
        make_reading(more, TINY, start=tmp_path)


def test_one_process_trains_in_a_directory(tmp_path: Path) -> None:
    with closing(Lock(tmp_path)), pytest.raises(StoreError, match="must have one writer; it is open"):
        make_reading(tmp_path, SMALL)
