"""Settings: what wins, what is read, and one line for each way to get one wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.errors import ConfigError
from agentq.recipes.load import load, settings
from agentq.recipes.settings import COMMANDS, RECIPES, EvalCommand, Ladder, Rft
from tests.reads import given, made


def test_load_puts_the_command_line_over_the_environment_over_the_file_over_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "search.toml"
    file.write_text('[search]\nc_exp = 2\nnum_iterations = 7\n[run]\nenv = "shop"\n')
    monkeypatch.setenv("AGENTQ_SEARCH__NUM_ITERATIONS", "8")
    monkeypatch.setenv("AGENTQ_PAIRS__ALPHA", "0.5")
    found = load(Ladder, "ladder", file, {"search": {"num_iterations": "9"}, "run": {"out": "a=b"}})
    assert (found.search.c_exp, found.search.num_iterations, found.search.num_proposals) == (2.0, 9, 5)
    assert (found.run.env, found.pairs.alpha, found.run.out) == ("shop", 0.5, "a=b")
    monkeypatch.setenv("AGENTQ_PAIRS__ALPHA", "2")
    with pytest.raises(ConfigError, match=r"environment: pairs.alpha must be less than or equal to 1; got '2'"):
        load(Ladder, "ladder")
    monkeypatch.setenv("AGENTQ_PAIRS__ALPHA", "1")
    with pytest.raises(ConfigError, match=r"environment: agentq eval does not read search.num"):
        load(EvalCommand, "eval")


def test_a_given_key_leaves_a_recipes_own_defaults_in_its_section() -> None:
    assert made(RECIPES["outcome_dpo"], ["--train.beta=0.2"]).train.learning_rate == 1e-5
    assert made(RECIPES["loop"], ["--run.num_tasks=3"]).run.num_rounds == 10


@pytest.mark.parametrize("command", COMMANDS)
def test_every_setting_has_a_sentence_and_reads_its_own_default(command: str) -> None:
    model = COMMANDS[command]
    rows = settings(model)
    assert len({row.key for row in rows}) == len(rows)
    assert load(model, command, None, given(f"--{row.key}={row.default}" for row in rows)) == model()
    assert all(row.description.endswith(".") for row in rows)


def test_there_are_few_settings() -> None:
    every = {row.key for model in COMMANDS.values() for row in settings(model)}
    assert len(every) <= 86  # a setting that a dozen recipes share may raise it


def test_to_dict_gives_the_same_settings_back_without_their_place() -> None:
    found = made(Ladder, ["--train.learning_rate=3e-5", "--run.out=elsewhere"])
    assert Ladder.model_validate(found.to_dict()) == made(Ladder, ["--train.learning_rate=3e-5"])
    assert found.to_dict()["train"]["learning_rate"] == 3e-5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[search]\nc_expl = 1", ", line 2: unknown key 'search.c_expl'; did you mean 'search.c_exp'?"),
        ("[serch]\nc_exp = 1", ", line 1: unknown key 'serch'; did you mean 'search'?"),
        ("search = 1", ": search must be a table, [search]; got 1"),
        ("[search]\nnum_iterations = 'ten'", ", line 2: search.num_iterations must be a valid integer; got 'ten'"),
        ("[search]\nnum_iterations = '10'", ", line 2: search.num_iterations must be a valid integer; got '10'"),
        ("[search]\nnum_iterations = 2.5", ", line 2: search.num_iterations must be a valid integer; got 2.5"),
        ("[search]\nnum_iterations = true", ", line 2: search.num_iterations must be a valid integer; got True"),
        (
            "[search]\nnum_iterations = 0",
            ", line 2: search.num_iterations must be greater than or equal to 1; got 0",
        ),
        ("[search]\nc_exp = inf", ", line 2: search.c_exp must be a finite number; got inf"),
        (
            "[search",
            " must be TOML; got Expected ']' at the end of a table declaration (at end of document)",
        ),
    ],
)
def test_load_names_what_is_wrong_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "search.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(Ladder, "ladder", file)
    assert str(error.value) == f"search.toml{message}"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--search.c_expl=1", "command line: unknown key 'search.c_expl'; did you mean 'search.c_exp'?"),
        ("--search.num_iterations=ten", "command line: search.num_iterations must be a valid integer; got 'ten'"),
        ("--train.learning_rate=-1", "command line: train.learning_rate must be greater than 0; got '-1'"),
        ("--train.learning_rate=nan", "command line: train.learning_rate must be a finite number; got 'nan'"),
        ("--pairs.alpha=1.5", "command line: pairs.alpha must be less than or equal to 1; got '1.5'"),
        ("--run.env=", "command line: run.env must have at least 1 character; got ''"),
        (f"--run.seed={1 << 32}", "command line: run.seed must be less than 4294967296; got '4294967296'"),
        (
            "--policy_gradient.kl_weight=1",
            "command line: agentq ladder does not read policy_gradient.kl_weight; "
            "it is read by agentq train reinforce, agentq train rloo, agentq train loop and 11 more",
        ),
    ],
)
def test_load_names_what_is_wrong_on_the_command_line(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(Ladder, "ladder", None, given([word]))
    assert str(error.value) == message


def test_load_names_a_file_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml must be a readable TOML file; got No such file or directory"):
        load(Ladder, "ladder", tmp_path / "none.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"must be a readable TOML file; got not UTF-8 text"):
        load(Ladder, "ladder", tmp_path / "x.toml")
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbf[eval]\r\nnum_tasks = 3\r\n")  # as Windows' editors write it
    assert load(Ladder, "ladder", tmp_path / "x.toml").eval.num_tasks == 3


def test_settings_that_a_command_does_not_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[rft]\nmax_per_task = 1\nnum_tasks = 9\n")
    assert load(Rft, "train rft", None, given(["--rft.max_per_task=1"])).rft.max_per_task == 1
    for source, file_and_words in (
        ("command line", (None, given(["--rft.num_tasks=9"]))),
        ("mine.toml, line 3", (file, given([]))),
    ):
        with pytest.raises(ConfigError) as error:
            load(Rft, "train rft", *file_and_words)
        message = "agentq train rft does not read rft.num_tasks; it is read by agentq demo, agentq "
        message += "ladder"
        assert str(error.value) == f"{source}: {message}"


@pytest.mark.parametrize(("words", "price"), [([], 3.0), (["--price.cached=0"], 0.0)])
def test_cached_tokens_cost_as_prompt_tokens_unless_said(words: list[str], price: float) -> None:
    assert made(EvalCommand, ["--price.prompt=3", *words]).price.of_tokens() == (3.0, price, 0.0)
