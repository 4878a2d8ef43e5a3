"""Settings: what wins, and one line for each way to get one wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.config import Config, load, settings
from agentq.errors import ConfigError
from agentq.recipes.presets import READS, load_for


def test_load_puts_the_command_line_over_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "search.toml"
    file.write_text('[search]\nc_exp = 2\nnum_iterations = 7\n[run]\nenv = "shop"\n')
    config = load(file, ["--search.num_iterations", "9", "--pairs.alpha=1", "--pairs.alpha=0.25", "--run.out=a=b"])
    assert (config.search.c_exp, config.search.num_iterations, config.search.num_proposals) == (2.0, 9, 5)
    assert (config.run.env, config.pairs.alpha, config.run.out) == ("shop", 0.25, "a=b")
    assert load() == Config()


def test_every_setting_has_a_sentence_and_reads_its_own_default() -> None:
    rows = settings()
    assert len({row.key for row in rows}) == len(rows) <= 51  # a setting that a dozen recipes share may raise it
    words = [f"--{row.key}={row.default}" for row in rows]
    assert load(None, words) == Config()
    assert all(row.description.endswith(".") for row in rows)


def test_to_dict_gives_the_same_settings_back_without_their_place() -> None:
    config = load(None, ["--train.learning_rate", "3e-5", "--run.out", "elsewhere"])
    assert Config.model_validate(config.to_dict()) == load(None, ["--train.learning_rate", "3e-5"])
    assert config.to_dict()["train"]["learning_rate"] == 3e-5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[search]\nc_expl = 1", "search.toml: unknown key 'search.c_expl'; did you mean 'search.c_exp'?"),
        ("[serch]\nc_exp = 1", "search.toml: unknown key 'serch'; did you mean 'search'?"),
        ("search = 1", "search.toml: search must be a table, [search]; got 1"),
        ("[search]\nnum_iterations = 'ten'", "search.toml: search.num_iterations must be a valid integer; got 'ten'"),
        ("[search]\nnum_iterations = '10'", "search.toml: search.num_iterations must be a valid integer; got '10'"),
        ("[search]\nnum_iterations = 2.5", "search.toml: search.num_iterations must be a valid integer; got 2.5"),
        ("[search]\nnum_iterations = true", "search.toml: search.num_iterations must be a valid integer; got True"),
        (
            "[search]\nnum_iterations = 0",
            "search.toml: search.num_iterations must be greater than or equal to 1; got 0",
        ),
        ("[search]\nc_exp = inf", "search.toml: search.c_exp must be a finite number; got inf"),
        (
            "[search",
            "search.toml must be TOML; got Expected ']' at the end of a table declaration (at end of document)",
        ),
    ],
)
def test_load_names_what_is_wrong_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "search.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--search.c_expl", "1"], "command line: unknown key 'search.c_expl'; did you mean 'search.c_exp'?"),
        (["--search.num_iterations=ten"], "command line: search.num_iterations must be a valid integer; got 'ten'"),
        (["--train.learning_rate", "-1"], "command line: train.learning_rate must be greater than 0; got '-1'"),
        (["--train.learning_rate", "nan"], "command line: train.learning_rate must be a finite number; got 'nan'"),
        (["--pairs.alpha=1.5"], "command line: pairs.alpha must be less than or equal to 1; got '1.5'"),
        (["--run.env="], "command line: run.env must have at least 1 character; got ''"),
        (["--run.seed", str(1 << 32)], "command line: run.seed must be less than 4294967296; got '4294967296'"),
        (["--run.env"], "command line: --run.env must be followed by a value; got nothing"),
        (["--run.env", "--run.seed=1"], "command line: --run.env must be followed by a value; got --run.seed=1"),
        (["run.env=shop"], "command line: settings must be written --section.key value; got 'run.env=shop'"),
    ],
)
def test_load_names_what_is_wrong_on_the_command_line(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(None, words)
    assert str(error.value) == message


def test_load_names_a_file_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml must be a readable TOML file; got No such file or directory"):
        load(tmp_path / "none.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"must be a readable TOML file; got not UTF-8 text"):
        load(tmp_path / "x.toml")


def test_settings_that_a_command_does_not_read_are_refused(tmp_path: Path) -> None:
    reads, file = READS["train rft"], tmp_path / "mine.toml"
    file.write_text("[rft]\nmax_per_task = 1\nnum_tasks = 9\n")
    assert load_for("train rft", None, ["--rft.max_per_task=1"], reads).rft.max_per_task == 1
    for source, given in (("command line", (None, ["--rft.num_tasks=9"])), ("mine.toml", (file, []))):
        with pytest.raises(ConfigError) as error:
            load_for("train rft", *given, reads)
        message = "settings must be ones that agentq train rft reads; got rft.num_tasks, read by agentq demo, agentq "
        message += "ladder"
        assert str(error.value) == f"{source}: {message}"
    assert load_for("train mine", None, ["--rft.num_tasks=9"], None).rft.num_tasks == 9  # unknown: any may be given


@pytest.mark.parametrize(("words", "price"), [([], 3.0), (["--price.cached=0"], 0.0)])
def test_cached_tokens_cost_as_prompt_tokens_unless_said(words: list[str], price: float) -> None:
    assert load(None, ["--price.prompt=3", *words]).price.of_tokens() == (3.0, price, 0.0)
