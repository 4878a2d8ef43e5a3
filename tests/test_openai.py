"""An engine over a server that plays OpenAI's API or vLLM's, well and badly. `tests/vllm` asks the real one."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from chaos_network import Network
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

from agentq import envs
from agentq.agent.prompts import LETTERS, policy_messages
from agentq.base.tokenizer import train_tokenizer
from agentq.cli import main
from agentq.credit.samples import sample_of
from agentq.errors import ConfigError, ModelError
from agentq.policies import patience
from agentq.policies.continuous import ContinuousEngine, EngineReply
from agentq.policies.engine_names import embedded_base, make_engine, read_name
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.openai_answers import Chat, read
from agentq.policies.openai_client import OpenAIClient
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.patience import BadAnswer, Unavailable, patiently
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.refusals import NO_IDS, NO_LOGPS
from agentq.policies.unadapted import Unadapted
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import History, Observation, StopReason
from tests.openai_factory import HISTORY, FakeOpenAI, ask, fake_openai

TOKENS = Gives.TOKEN_IDS | Gives.LOGPS | Gives.PATTERNS | Gives.LETTERS | Gives.BASE


@pytest.fixture(scope="module")
def tokenizer() -> object:
    return AutoTokenizer.from_pretrained(embedded_base())


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.001)


@pytest.fixture
def vllm(tokenizer: object) -> Iterator[FakeOpenAI]:
    """A server of token ids that serves the embedded base, whose tokenizer is here."""
    with fake_openai(tokenizer=tokenizer, root=embedded_base()) as fake:
        yield fake


@pytest.fixture
def open_engine() -> Iterator[Callable[..., OpenAIEngine]]:
    engines: list[OpenAIEngine] = []

    def make(fake: FakeOpenAI, *args: str, **settings: object) -> OpenAIEngine:
        engines.append(OpenAIEngine(fake.url, *args, **{"patience_s": 20.0, **settings}))  # type: ignore[arg-type]
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def said(samples: list[SampledAnswer]) -> list[object]:
    return [(s.text, s.token_ids.tolist(), s.logps.tolist()) for s in samples]


@pytest.mark.parametrize(
    ("tokens", "settings", "gives"),
    [
        (True, {}, TOKENS | Gives.SEEDS),
        (True, {"honours_seeds": False}, TOKENS),
        (True, {"one_seed": True}, TOKENS),
        (False, {}, Gives.SEEDS),
        (False, {"honours_n": False}, Gives.SEEDS),
        (False, {"honours_seeds": False}, Gives.TEXT),
        (False, {"likeliest": True}, Gives.SEEDS | Gives.LETTERS),
    ],
)
def test_what_a_server_gives_is_asked_of_it(
    tokens: bool, settings: dict[str, bool], gives: Gives, tokenizer: object, open_engine: Callable[..., OpenAIEngine]
) -> None:
    with fake_openai(tokenizer=tokenizer if tokens else None, **settings) as fake:
        fake.root = str(embedded_base())
        engine = open_engine(fake)
        assert (engine.name, engine.gives) == (f"{fake.url}#tiny", gives)
        samples = ask(engine)
        assert [len(s.token_ids) > 0 for s in samples] == [tokens] * 3
        assert len({s.text for s in samples}) > 1  # choices that are asked for one by one have seeds of their own


def test_token_ids_without_their_tokenizer_are_text(vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine]) -> None:
    vllm.root = vllm.weights = vllm.cached = "/somewhere/else"  # not here, and nothing is looked up on the hub
    engine = open_engine(vllm)
    assert engine.gives == Gives.SEEDS
    assert engine.render(HISTORY, policy_messages, max_new_tokens=9).ids.size == 0
    assert open_engine(vllm, tokenizer=embedded_base()).gives == TOKENS | Gives.SEEDS


SAID = "text x <|im_end|> <|eot_id|> [INST] <think> Frage: y [*odd*] <b>"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "text x < |im_end|> < |eot_id|> [ INST] < think> Frage: y [*odd*] <b>"),
        (
            {"/tokenizer_info": {"added_tokens_decoder": {"5": "[*odd*]", "6": {"content": "<b>"}, "7": " "}}},
            "text x < |im_end|> < |eot_id|> [ INST] < think> Frage: y [ *odd*] < b>",
        ),
        (
            {"/props": {"chat_template": "{{ '<b>' }}"}},
            "text x < |im_end|> < |eot_id|> [ INST] < think> Frage: y [*odd*] < b>",
        ),
        ({"/props": {"chat_template": 5}}, "text x < |im_end|> < |eot_id|> [ INST] < think> Frage: y [*odd*] <b>"),
    ],
)
def test_messages_hold_no_mark_of_a_template(
    told: dict[str, dict[str, object]], said: str, open_engine: Callable[..., OpenAIEngine]
) -> None:
    with fake_openai() as fake:
        fake.told = told
        engine = open_engine(fake)
        history = History(SAID, Observation(SAID), (f"TYPE [3] {SAID}",))
        prompt = engine.render(history, policy_messages, max_new_tokens=9)
        asyncio.run(engine.sample(SampleRequest(prompt, max_new_tokens=9)))
        (sent,) = [message["content"] for message in fake.asked[-1]["messages"] if message["role"] == "user"]
    assert sent.count(said) == 3 and SAID not in sent


def test_samples_are_whole_and_accounted_for(vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine]) -> None:
    engine = open_engine(vllm)
    samples = ask(engine, role="critic")
    end = vllm.tokenizer.eos_token_id
    for i, s in enumerate(samples):
        alone = vllm._choice(vllm.asked[-1], vllm.asked[-1]["prompt"], i, chat=False)
        assert (s.text, s.token_ids.tolist()) == (alone["text"], alone["token_ids"])
        assert s.token_ids[-1] == end and s.stop_reason is StopReason.EOS and s.version == 0
        np.testing.assert_array_equal(s.logps, np.array([-0.25 - t % 7 for t in s.token_ids], np.float32))
    tally = engine.usage.roles["critic"]
    prompt = engine.render(HISTORY, policy_messages, max_new_tokens=40).ids
    assert (tally.requests, tally.prompt_tokens, tally.cached_tokens) == (1, len(prompt), 2)
    assert tally.generated_tokens == sum(len(s.token_ids) for s in samples) and list(engine.usage.roles) == ["critic"]


def test_greedy_is_asked_once(vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine]) -> None:
    engine = open_engine(vllm)
    samples = ask(engine, temperature=0.0)
    assert len(samples) == 3 and len({s.text for s in samples}) == 1 and vllm.asked[-1]["n"] == 1


def test_a_server_must_be_the_one_that_is_meant(
    vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"must be asked for one of its models \(tiny\); got 'huge'"):
        open_engine(vllm, "huge")
    train_tokenizer(["other words"] * 9, vocab_size=300, context_tokens=64).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="the tokenizer must be that of http"):
        open_engine(vllm, tokenizer=tmp_path)
    vllm.processed_logprobs = True
    with pytest.raises(ModelError, match=r"at temperature 1 \(vLLM: --logprobs-mode raw_logprobs\)"):
        open_engine(vllm)
    with fake_openai() as fake, pytest.raises(ConfigError, match="a tokenizer must go with a server that takes token"):
        open_engine(fake, tokenizer=embedded_base())


def test_letters_are_told_by_a_chat_and_others_have_the_least_logp(open_engine: Callable[..., OpenAIEngine]) -> None:
    with fake_openai(likeliest=True) as fake:
        (sample,) = ask(open_engine(fake), k=1, letters="ABC", max_new_tokens=1)
        assert fake.asked[-1]["top_logprobs"] == 20 and sample.letter_logps == (-4.0, -1.0, -5.0)
        (free,) = ask(open_engine(fake), k=1)
        assert "top_logprobs" not in fake.asked[-1] and free.letter_logps == ()


@pytest.mark.parametrize("told", [None, [], {"tokens": ["B"]}, {"content": None}, {"content": [{"token": "B"}]}])
def test_log_probabilities_of_another_form_are_none_and_the_chat_is_read(told: object) -> None:
    said = {"choices": [{"finish_reason": "stop", "message": {"content": "hello"}, "logprobs": told}]}
    (choice,) = read(Chat, json.dumps(said)).choices
    assert choice.message.content == "hello" and choice.likeliest() == {}


def test_letters_are_told_by_a_vllm_that_is_held_to_them(
    vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine]
) -> None:
    engine = open_engine(vllm)
    (sample,) = ask(engine, k=1, letters="ABC", max_new_tokens=1)
    assert (vllm.asked[-1]["structured_outputs"], vllm.asked[-1]["logprobs"]) == ({"regex": "[ABC]"}, 3)
    assert sample.letter_logps == (-3.0, -2.0, -1.0)
    (sample,) = ask(engine, k=1, letters=LETTERS[:22], max_new_tokens=1)
    assert vllm.asked[-1]["logprobs"] == 20 and sample.letter_logps[:4] == (-20.0, -20.0, -20.0, -19.0)


FAULTS = ("429", "503", "500", "stall", "truncated", "malformed", "no choices", "null choices", "counts", "broken off")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_changes_no_sample(vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], fault: str) -> None:
    engine, times = open_engine(vllm, timeout_s=2.0 if fault == "stall" else 20.0), 1 if fault == "stall" else 3
    clean = ask(engine)
    vllm.faults.extend([fault] * times)
    asked = len(vllm.asked)
    assert said(ask(engine)) == said(clean)
    assert len(vllm.asked) - asked == times + 1 and engine.usage.total.requests == 2


@pytest.mark.parametrize(
    ("fault", "settings", "message", "attempts"),
    [
        ("400", {}, r"must accept agentq's request; got HTTP 400: .*it hurts", 1),
        (
            "401",
            {},
            r"got HTTP 401: .*; put the server's key in OPENAI_API_KEY, or OPENAI_API_KEY_127_0_0_1 for this host "
            r"alone$",
            1,
        ),
        ("malformed", {"patience_s": 0.0}, r"#tiny must give OpenAI's answers within 0 s; got Invalid JSON: ", 1),
        ("counts", {}, r"got (\d+) token ids with \d+ log-probabilities, 6 times", 6),
        ("no choices", {}, "got 0 of 3 choices, 6 times", 6),
        ("500", {"patience_s": 0.0}, "#tiny must answer within 0 s; got HTTP 500", 1),
    ],
)
def test_what_does_not_pass_is_told_in_one_line(
    vllm: FakeOpenAI,
    open_engine: Callable[..., OpenAIEngine],
    fault: str,
    settings: dict[str, float],
    message: str,
    attempts: int,
) -> None:
    engine = open_engine(vllm, **settings)
    vllm.faults.extend([fault] * 9)
    asked = len(vllm.asked)
    with pytest.raises(ModelError, match=message) as raised:
        ask(engine)
    assert str(raised.value).count("\n") == 0 and "http://127.0.0.1" in str(raised.value)
    assert len(vllm.asked) - asked == attempts


def test_waits_double_and_follow_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    failures: list[Exception] = [Unavailable("a"), BadAnswer("b"), Unavailable("c", after_s=7.5), Unavailable("d")]

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def call() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    monkeypatch.setattr(patience, "FIRST_WAIT_S", 1.0)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert asyncio.run(patiently(call, who="it", patience_s=60)) == "done"
    assert [0.5 <= waits[0] <= 1, 1 <= waits[1] <= 2, 9 <= waits[2] <= 11.5, 11 <= waits[3] <= 15.5] == [True] * 4


def test_a_cancelled_request_is_hung_up(vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine]) -> None:
    engine = open_engine(vllm)
    vllm.faults.append("stall")

    async def main() -> None:
        prompt = engine.render(HISTORY, policy_messages, max_new_tokens=40)
        task = asyncio.create_task(engine.sample(SampleRequest(prompt)))
        await asyncio.to_thread(vllm.stalled.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert vllm.hung_up.wait(10)


def test_no_more_requests_than_slots(vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine]) -> None:
    engine = open_engine(vllm, slots=2)
    vllm.at_once, vllm.most_at_once = threading.Barrier(2), 0

    async def main() -> None:
        prompt = engine.render(HISTORY, policy_messages, max_new_tokens=40)
        await asyncio.gather(*(engine.sample(SampleRequest(prompt, seed=i)) for i in range(6)))

    asyncio.run(main())
    assert vllm.most_at_once == 2 and engine.usage.total.requests == 6 and engine.usage.total.queue_s > 0


def searched(engine: OpenAIEngine) -> list[TreeRecord]:
    """Trees of four tasks at once."""
    settings = SearchSettings(num_iterations=4, num_proposals=3)
    tasks, trees = envs.tasks("booking", "train", 4), list[TreeRecord]()
    policy = ModelPolicy(engine, max_new_tokens=40)

    def search(task: object) -> object:
        return TreeSearch(envs.make("booking"), task, policy, settings).run()  # type: ignore[arg-type]

    run_all(tasks, search, in_flight=4, on_done=trees.append)  # type: ignore[arg-type]
    return sorted(trees, key=lambda tree: tree.task.seed)


def columns(tree: TreeRecord) -> list[object]:
    proposals = [p and (p.action.text, p.token_ids.tolist(), p.logps.tolist()) for p in tree.proposal]
    return [tree.parent.tolist(), tree.visit_count.tolist(), tree.value_sum.tolist(), proposals]


@pytest.mark.rest
def test_a_search_over_faults_grows_the_same_trees(
    vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is killed in the middle, and comes back when three attempts have found it away."""
    engine, away = open_engine(vllm, timeout_s=2.0), []
    clean = searched(engine)
    vllm.faults.extend([*FAULTS, "", "", "", "die"])
    call = OpenAIClient.call

    async def noticed(self: OpenAIClient, *args: object) -> str:
        try:
            return await call(self, *args)  # type: ignore[arg-type]
        except Unavailable as error:
            away.append("connect" in str(error))
            if sum(away) == 3:
                vllm.start()
            raise

    monkeypatch.setattr(OpenAIClient, "call", noticed)
    found = searched(engine)
    assert sum(away) >= 3 and not vllm.faults
    assert [columns(tree) for tree in found] == [columns(tree) for tree in clean]


def test_text_only_can_be_searched_and_kept_but_not_trained_on(
    open_engine: Callable[..., OpenAIEngine], tmp_path: Path
) -> None:
    with fake_openai() as fake:
        tree = searched(open_engine(fake))[0]
    with RunStore.open(tmp_path / "run", {}) as store:
        store.add_tree("search", tree)
        (kept,) = store.trees("search")
    proposal = next(p for p in kept.proposal if p is not None)
    assert proposal.action.text and proposal.token_ids.size == proposal.logps.size == proposal.prompt_ids.size == 0
    with pytest.raises(ConfigError, match="must have the tokens that were sampled; got text only: collect with"):
        sample_of(proposal)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The embedded base with other weights."""
    shutil.copytree(embedded_base(), tmp_path / "new")
    file = tmp_path / "new" / "model.safetensors"
    save_file({name: w + 1 for name, w in load_file(file).items()}, file)
    return tmp_path / "new"


def test_publishing_exchanges_weights_and_marks_samples(
    vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], published: Path
) -> None:
    engine = open_engine(vllm)
    before = ask(engine)
    assert engine.publish(published) == 1
    after = ask(engine)
    assert said(after) != said(before) and [s.version for s in (*before, *after)] == [0, 0, 0, 1, 1, 1]
    assert not vllm.paused and vllm.cached == vllm.weights == str(published)
    vllm.kill()
    vllm.start()  # with its first weights
    assert said(ask(engine)) == said(after) and vllm.weights == str(published)


def test_publishing_survives_a_connection_that_breaks_off(
    vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], published: Path
) -> None:
    network = Network(urlsplit(vllm.url).port or 0)
    behind: Any = SimpleNamespace(url=f"http://127.0.0.1:{network.port}/v1")
    try:
        engine = open_engine(behind)
        network.fault = "truncates"
        assert engine.publish(published) == 1 and vllm.weights == str(published)
        assert network.fault == "" and engine.usage.faults == {"connection broken off": 1}
    finally:
        network.close()


@pytest.mark.parametrize("where", ["file", "shape", "server", "tied"])
def test_what_cannot_be_published_changes_nothing(
    vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], published: Path, tmp_path: Path, where: str
) -> None:
    engine = open_engine(vllm)
    engine.publish(published)
    before, broken = ask(engine), tmp_path / "broken"
    shutil.copytree(published, broken)
    file = broken / "model.safetensors"
    if where == "file":
        file.write_bytes(file.read_bytes()[:-100])
    elif where == "shape":
        save_file({name: w[:-1] for name, w in load_file(file).items()}, file)
    elif where == "server":
        (broken / "config.json").unlink()
    else:
        vllm.device = "cpu"
    wrong = {
        "file": "a damaged one",
        "shape": "others in",
        "server": "HTTP 500: .*no config.json",
        "tied": "one tied to",
    }
    with pytest.raises(
        ModelError, match=f"to load what is published; got .*broken: .*{wrong[where]}.*; version 1 stays"
    ):
        engine.publish(broken)
    assert vllm.weights == vllm.cached == str(published)  # at once, also for others that ask this server
    assert said(ask(engine)) == said(before) and engine.version == 1 and not vllm.paused


def test_an_adapter_is_published_under_a_name_of_its_own(
    vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], published: Path, tmp_path: Path
) -> None:
    engine, adapters = open_engine(vllm), [tmp_path / name for name in ("one", "two", "broken")]
    before = ask(engine)
    for adapter in adapters:
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text("{}")
        (adapter / "adapter_model.safetensors").write_bytes(b"")
    (adapters[2] / "adapter_model.safetensors").unlink()
    assert [engine.publish(adapter) for adapter in adapters[:2]] == [1, 2]
    after = ask(engine)
    with pytest.raises(ModelError, match="version 2 stays"):
        engine.publish(adapters[2])
    assert list(vllm.adapters.values()) == [str(adapters[1])]
    vllm.kill()
    vllm.start()  # without adapters
    assert said(ask(engine)) == said(after) != said(before)
    engine.publish(published)
    assert ask(engine)[0].version == 3 and not vllm.adapters


class Held(ContinuousEngine):
    """Answers when it is let go; notes what is under way when weights are loaded."""

    def __init__(self) -> None:
        super().__init__("held", TOKENS, None, slots=3)
        self.go, self.loaded_with = asyncio.Semaphore(0), list[int]()

    async def _ask(self, request: SampleRequest) -> EngineReply:
        await self.go.acquire()
        return EngineReply([SampledAnswer(str(self.version), NO_IDS, NO_LOGPS, StopReason.EOS, self.version)], 1, 0, 1)

    async def _load(self, checkpoint: Path) -> None:
        self.loaded_with.append(self._under_way)


def test_publishing_waits_for_what_is_under_way() -> None:
    """What waits for a slot meanwhile gets the new weights."""
    engine = Held()

    async def main() -> list[int]:
        asked = [asyncio.create_task(engine.sample(SampleRequest(Prompt([], NO_IDS)))) for _ in range(3)]
        while engine._under_way < 3:
            await asyncio.sleep(0)
        publishing = asyncio.create_task(asyncio.to_thread(engine.publish, Path("new")))
        while not engine._publishing.locked():
            await asyncio.sleep(0)
        asked += [asyncio.create_task(engine.sample(SampleRequest(Prompt([], NO_IDS)))) for _ in range(2)]
        for _ in range(5):  # they end one by one; none may begin in between
            engine._background._loop.call_soon_threadsafe(engine.go.release)
            await asyncio.sleep(0.05)
        assert await publishing == 1
        return [sample.version for (sample,) in await asyncio.gather(*asked)]

    assert asyncio.run(main()) == [0, 0, 0, 1, 1] and engine.loaded_with == [0]
    engine.close()


def test_prompts_that_lost_actions_are_counted_once_each() -> None:
    engine = Held()
    engine.go = asyncio.Semaphore(3)
    for prompt in (Prompt([], NO_IDS, shortened=7), Prompt([], NO_IDS), Prompt([], NO_IDS, shortened=1)):
        asyncio.run(engine.sample(SampleRequest(prompt)))
    assert (engine.usage.total.requests, engine.usage.total.shortened) == (3, 2)
    engine.close()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("some/model", Path("some/model")),
        ("hf:some/model", Path("some/model")),
        ("vllm:some/model", "vllm:some/model"),
        ("https://host:8000/v1?tokenizer=a/b#m", "https://host:8000/v1?tokenizer=a/b#m"),
    ],
)
def test_an_engine_has_one_name(name: str, read: Path | str) -> None:
    assert read_name(name) == read


@pytest.mark.parametrize("name", ["gpt:4", "http:/host/v1", "http://host/v1?tokeniser=x", "openai:gpt"])
def test_a_wrong_name_is_told_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=r"an engine must be a checkpoint's name or path, hf:PATH.*; got '") as raised:
        make_engine(name)
    assert name in str(raised.value) and "\n" not in str(raised.value)


def test_a_name_makes_the_engine(vllm: FakeOpenAI) -> None:
    vllm.root = "somewhere/else"
    engine = make_engine(f"{vllm.url}?tokenizer={embedded_base()}#tiny")
    assert isinstance(engine, OpenAIEngine) and engine.name == f"{vllm.url}#tiny" and TOKENS in engine.gives
    engine.close()


@pytest.mark.parametrize("search", [False, True])
def test_eval_asks_a_server(search: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also as the critic; what is trained must be a checkpoint."""
    with fake_openai() as fake:
        name, out = f"{fake.url}#tiny", ["--out", str(tmp_path / "run"), "--eval.num_tasks=3"]
        more = ["--search", "--base", name, "--eval.num_iterations=2"] if search else []
        assert main(["eval", name, *out, *more, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rungs"]
        assert (row["name"], row["n"]) == (name, 3) and len(fake.asked) > 3
        assert main(["train", "rft", "--base", name, "--out", str(tmp_path / "train")]) == 2
    assert f"training must begin with a checkpoint; got --base {name}" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_base_is_asked_for_by_its_own_name(
    device: str, vllm: FakeOpenAI, open_engine: Callable[..., OpenAIEngine], tmp_path: Path
) -> None:
    vllm.device = device
    engine = open_engine(vllm)
    assert (Gives.BASE in engine.gives) == (device == "cuda")
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    engine.publish(tmp_path)
    policy, of_base = (ask(each)[0] for each in (engine, Unadapted(engine)))
    asked = [body["model"] for body in vllm.asked if "prompt" in body][-2:]
    assert asked == [next(iter(vllm.adapters)), "tiny"] and (policy.version, of_base.version) == (1, 0)
