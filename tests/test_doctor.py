"""`agentq doctor` on a good set-up and on broken ones, each of which is broken for real: every fault is named."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agentq.cli import main
from agentq.doctor import Diagnosis, Patient, acting, machine, reading
from agentq.doctor.checks import CHECKS, examine
from agentq.policies import openai_engine
from agentq.policies.engine_names import embedded_base, read_name
from agentq.policies.renderer import load_renderer
from agentq.recipes import memory
from tests.fp8_factory import as_fp8
from tests.openai_factory import fake_openai

ROOT = Path(__file__).parents[1]
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}<|assistant|>{{ m['content'] }}<|end|>"
    "{% else %}<|user|>{{ m['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)  # the base's, with the system message


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the embedded base, to break."""
    return Path(shutil.copytree(embedded_base(), tmp_path / "checkpoint"))


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def make_random(checkpoint: Path) -> None:
    """Give a checkpoint random weights."""
    weights, rng = load_file(checkpoint / "model.safetensors"), np.random.default_rng(0)
    drawn = {name: rng.normal(0, 0.1, value.shape).astype(np.float32) for name, value in weights.items()}
    save_file(drawn, checkpoint / "model.safetensors", {"format": "pt"})


def diagnoses(model: Path | str, *checks: object) -> dict[str, Diagnosis]:
    """What the named checks find in turn."""
    return dict(examine(model, "booking", checks))  # type: ignore[arg-type]


# a good set-up


def test_a_good_set_up_passes_and_each_check_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn", "skipped"}
    assert [line[8:26].strip() for line in lines][-4:] == ["actions", "critic", "system role", "log probabilities"]
    assert "16 of 16 sampled actions could be read" in lines[-4] and "4 of 4 rankings of" in lines[-3]


def test_checks_of_the_machine_load_no_torch() -> None:
    code = (
        "import sys; from agentq.doctor import machine; from agentq.doctor import Patient; p = Patient('', 'booking')"
    )
    code += "; [check(p) for check in (machine.versions, machine.package, machine.gpu, machine.shared_memory, "
    code += "machine.file_descriptors, machine.chromium)]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_as_json_it_is_one_object_and_a_failed_check_is_exit_code_1(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["doctor", str(tmp_path / "nothing"), "--env", "shop", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert (found["env"], found["healthy"]) == ("shop", False)
    verdicts = {row["check"]: row["verdict"] for row in found["checks"]}
    assert [name for name, verdict in verdicts.items() if verdict == "fail"] == ["tokenizer", "model"]
    assert verdicts["actions"] == verdicts["log probabilities"] == "skipped"


def test_without_the_extra_for_models_it_names_the_install_line() -> None:
    code = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; from agentq.cli import main"
    code += "; sys.exit(main(['doctor', '--json']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    found = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    for name in ("tokenizer", "model"):
        assert found[name]["found"].endswith("pip install 'agentq-search[train]'")
    assert found["environment"]["verdict"] == "ok" and found["actions"]["verdict"] == "skipped"


def test_an_unknown_environment_is_named() -> None:
    found = dict(examine(embedded_base(), "bookin", [acting.environment]))["environment"]
    assert found == Diagnosis("fail", "no environment 'bookin'; did you mean 'booking'?")


def test_a_broken_environment_of_ones_own_is_named(tmp_path: Path) -> None:
    site = tmp_path / "site.py"
    site.write_text(
        "import random\n"
        "class Site:\n"
        "    def reset(self, seed):\n"
        "        return {'instruction': 'go', 'text': f'button go [1] {random.random()}'}\n"
        "    def step(self, command, element, text):\n"
        "        return {'text': 'button go [1]', 'terminated': command == 'STOP'}\n"
    )
    found = dict(examine(embedded_base(), f"{site}:Site", [acting.environment]))["environment"]
    assert found.verdict == "fail" and found.remedy == f"agentq env check {site}:Site"


@pytest.mark.parametrize(
    ("changed", "failed", "others"),
    [
        ("", [], {}),
        ("success': element == 99999 or won", ["environment"], {}),
        (
            "reset",
            ["environment"],
            {"context": "the environment check failed", "actions": "the environment check failed"},
        ),
    ],
)
def test_the_readmes_environment_is_examined(
    changed: str, failed: list[str], others: dict[str, str], tmp_path: Path
) -> None:
    site, source = tmp_path / "site.py", (ROOT / "examples" / "search_own_env.py").read_text()
    source = source[source.index("class Count") : source.index("def model")]
    if changed == "reset":
        source = source.replace(
            "        self.goal, self.count = ", "        raise RuntimeError('no page')\n        _ = "
        )
    elif changed:
        source = source.replace('success": won', 'success": element == 99999 or won').replace(
            'command == "STOP"}', 'command == "STOP" or element == 99999}'
        )
    site.write_text(source)
    every = (reading.tokenizer, reading.model, acting.environment, acting.context, acting.actions, reading.system_role)
    found = dict(examine(embedded_base(), f"{site}:Count", every))
    assert [name for name, diagnosis in found.items() if diagnosis.verdict == "fail"] == failed
    skipped = {name: diagnosis.found for name, diagnosis in found.items() if diagnosis.verdict == "skipped"}
    assert skipped == others


# a broken machine


@pytest.mark.browser
def test_a_chromium_that_is_not_executable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from playwright.sync_api import Error, sync_playwright

    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with sync_playwright() as playwright, pytest.raises(Error) as missing:
        playwright.chromium.launch()
    named = re.search(r"Executable doesn't exist at (\S+)", missing.value.message)
    assert named is not None
    Path(named[1]).parent.mkdir(parents=True)
    Path(named[1]).write_bytes(b"")
    found = machine.chromium(Patient("", "booking"))
    assert found.verdict == "warn" and "EACCES" in found.found
    assert found.remedy == f"make {named[1]} executable (chmod +x), or install another Chromium"


@pytest.mark.browser
@pytest.mark.skipif(os.geteuid() != 0, reason="others than root may have the sandbox")
@pytest.mark.parametrize(("env", "verdict"), [("booking", "warn"), ("chromium/booking", "fail"), ("miniwob", "fail")])
def test_a_chromium_as_root_with_its_sandbox_is_named(env: str, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTQ_NO_SANDBOX")
    found = machine.chromium(Patient("", env))
    assert found.verdict == verdict
    assert "root without --no-sandbox" in found.found and found.found.endswith("AGENTQ_NO_SANDBOX=1")


def test_too_few_file_descriptors_are_named() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        found = machine.file_descriptors(Patient("", "booking"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == Diagnosis("fail", "64 may be open; browsers and servers need 256", "ulimit -n 4096")


def test_too_little_shared_memory_is_named() -> None:
    code = "from agentq.doctor import Patient, machine; print(machine.shared_memory(Patient('{}', 'booking')))"
    for model, verdict in (("base", "warn"), ("vllm:base", "fail")):
        mounted = f'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "{sys.executable}" -c "{code.format(model)}"'
        done = subprocess.run(["unshare", "-m", "sh", "-c", mounted], capture_output=True, text=True, check=False)
        if "not permitted" in done.stderr or "denied" in done.stderr:
            pytest.skip("/dev/shm can be replaced by root only")
        assert f"verdict='{verdict}', found='16 MiB free in /dev/shm;" in done.stdout, done.stderr
        assert "--shm-size 2g" in done.stdout


@pytest.mark.parametrize(
    ("name", "release", "said"),
    [
        ("numpy", "1.20.0", "numpy 1.20.0 where agentq requires numpy>=1.26"),
        ("torch", "2.7.1+cpu", "torch 2.7.1+cpu where agentq requires torch"),
    ],
)
def test_a_version_out_of_range_is_named(
    name: str, release: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / f"{name}-{release}.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n")
    assert machine.versions(Patient("", "booking")).verdict == "ok"
    monkeypatch.syspath_prepend(tmp_path)
    found = machine.versions(Patient("", "booking"))
    assert found.verdict == "fail" and said in found.found


@pytest.mark.parametrize(
    ("found", "wanted", "inside"),
    [
        ("2.8", ">=2.8.0", True),
        ("2.14.0", "<2.14,>=2.8", False),
        ("2.13.9+cpu", "<2.14,>=2.8", True),
        ("2.10", ">=2.9", True),
        ("1.0", "", True),
    ],
)
def test_versions_compare_by_number(found: str, wanted: str, inside: bool) -> None:
    assert machine.in_range(found, wanted) is inside


def test_another_projects_agentq_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agentq-0.0.9.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    found = machine.package(Patient("", "booking"))
    assert found.verdict == "fail" and "another project's, agentq 0.0.9" in found.found


@pytest.mark.parametrize(
    ("script", "verdict", "said"),
    [
        ("echo 'NVIDIA H100, 70000 MiB, 81559 MiB'", "", "NVIDIA H100, 70000 MiB of 81559 MiB free"),
        ("echo 'NVIDIA-SMI has failed'; exit 9", "fail", "nvidia-smi failed: NVIDIA-SMI has failed"),
    ],
)
def test_a_gpu_without_driver_is_named(
    script: str, verdict: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = machine.gpu(Patient("", "booking"))
    assert found.verdict == (verdict or ("warn" if "+cpu" in version("torch") else "ok")) and said in found.found


# a broken checkpoint


def test_a_checkpoint_without_tokenizer_is_named(checkpoint: Path) -> None:
    for file in checkpoint.glob("tokenizer*"):
        file.unlink()
    found = diagnoses(
        checkpoint, reading.tokenizer, reading.model, reading.template, acting.environment, acting.actions
    )
    assert found["tokenizer"].verdict == found["model"].verdict == "fail"
    assert found["tokenizer"].found.startswith(f"the tokenizer must be one by name or path; got {checkpoint}: ")
    assert found["tokenizer"].remedy.startswith("put the model's tokenizer.json")
    assert found["template"].verdict == found["actions"].verdict == "skipped"


def test_a_checkpoint_without_one_weight_is_named(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    gone = "model.layers.1.mlp.up_proj.weight"
    del weights[gone]
    save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})
    found = diagnoses(checkpoint, reading.tokenizer, reading.model, reading.template)
    assert found["model"].verdict == "fail" and gone in found["model"].found
    assert found["model"].remedy == "save or download the checkpoint again"
    assert found["template"].verdict == "ok"


def test_a_tokenizer_without_chat_template_is_named(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").unlink()
    found = diagnoses(checkpoint, reading.tokenizer, reading.template, reading.end_token)
    assert found["template"].verdict == "warn" and "no chat template" in found["template"].found
    assert found["end token"].verdict == "ok"


def test_a_template_that_loses_the_system_role_is_named(checkpoint: Path) -> None:
    make_random(checkpoint)
    every = (reading.tokenizer, reading.model, acting.environment, acting.actions, reading.system_role)
    found = diagnoses(checkpoint, *every)
    assert found["actions"].verdict == found["system role"].verdict == "fail"
    assert "leaves out the system message" in found["system role"].found
    assert diagnoses(checkpoint, reading.tokenizer, reading.system_role)["system role"].verdict == "warn"
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    assert diagnoses(checkpoint, reading.tokenizer, reading.system_role)["system role"].verdict == "ok"


def test_a_template_that_is_not_prefix_preserving_is_named(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").write_text(
        TEMPLATE.replace("{{ m['content'] }}<|end|>", "<think></think>{{ m['content'] }}<|end|>")
    )
    found = diagnoses(checkpoint, reading.tokenizer, reading.template, reading.end_token)
    assert found["template"].verdict == "warn" and "not prefix-preserving" in found["template"].found
    assert "'<think></think>" in found["template"].found
    assert found["end token"].verdict == "ok"


def test_a_template_whose_next_turn_ends_an_answer_passes(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE.replace("<|end|>", ""))  # as GLM's
    ids = load_renderer(checkpoint).tokenizer.convert_tokens_to_ids(["<|end|>", "<|user|>"])
    edit(checkpoint / "generation_config.json", eos_token_id=ids)
    assert diagnoses(checkpoint, reading.tokenizer, reading.end_token)["end token"].verdict == "ok"


@pytest.mark.parametrize(("written", "named"), [("<|pad|>", "<|pad|>"), ("", "<|user|>")])
def test_an_end_token_outside_the_mask_is_named(written: str, named: str, checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE.replace("<|end|>", written))
    found = diagnoses(checkpoint, reading.tokenizer, reading.end_token)["end token"]
    assert found.verdict == "fail"
    assert found.found == f"outside the loss mask: the template ends an answer with {named}, training with <|end|>"


@pytest.mark.parametrize(
    ("normalizer", "verdict", "what"),
    [
        ({"type": "Replace", "pattern": {"String": " ,"}, "content": ","}, "warn", "a text"),
        ({"type": "Lowercase"}, "fail", "an action"),
    ],
)
def test_a_tokenizer_that_changes_text_is_named(
    normalizer: dict[str, object], verdict: str, what: str, checkpoint: Path
) -> None:
    edit(checkpoint / "tokenizer.json", normalizer=normalizer)
    found = diagnoses(checkpoint, reading.tokenizer)["tokenizer"]
    assert found.verdict == verdict and found.found.startswith(f"{what} changes when it is encoded and decoded")


def test_a_context_shorter_than_the_longest_prompt_is_named(checkpoint: Path) -> None:
    every = (reading.tokenizer, reading.model, acting.environment, acting.context, acting.actions)
    edit(checkpoint / "config.json", max_position_embeddings=128)
    found = diagnoses(checkpoint, *every)
    assert found["context"].verdict == "fail" and "the context is 128" in found["context"].found
    assert found["actions"].verdict == "skipped"
    longest = re.search(r"longest prompt ([\d,]+) tokens", found["context"].found)
    assert longest is not None
    edit(checkpoint / "config.json", max_position_embeddings=int(longest[1].replace(",", "")) + 95)
    found = diagnoses(checkpoint, *every)
    assert found["context"].verdict == "warn" and "the oldest actions are left out" in found["context"].found
    assert found["actions"].verdict == "ok"


def test_a_model_that_answers_nonsense_is_named(checkpoint: Path) -> None:
    make_random(checkpoint)
    found = diagnoses(checkpoint, reading.tokenizer, reading.model, acting.environment, acting.actions)["actions"]
    assert found.verdict == "fail" and found.found.startswith("0 of 16 sampled actions could be read")
    assert "--run.constrained true" in found.remedy


def test_a_model_that_is_too_large_to_train_is_named(checkpoint: Path) -> None:
    edit(checkpoint / "config.json", hidden_size=1 << 14, intermediate_size=1 << 16, num_hidden_layers=64)
    found = diagnoses(checkpoint, reading.tokenizer, acting.training_memory)["training memory"]
    assert found.verdict == "warn" and "divide the learner" in found.remedy
    h, i, heads, vocabulary = 1 << 14, 1 << 16, 128, 1764
    weights = 64 * (4 * h * heads + 3 * h * i + 2 * h) + vocabulary * h + h
    # a token of a layer: the residual, six more of its width, and twice the outputs of q, k, v, o, gate, up and down
    activations = 64 * (7 * h + 2 * (3 * heads + 2 * h + 2 * i))
    needs = (16 * weights + 4 * (1 << 14) * activations + 12 * (1 << 14) * min(1 << 11, vocabulary)) / (1 << 30)
    assert f"needs about {needs:.2f} GiB, adapters " in found.found and found.found.endswith(" GiB are free on cpu")


def test_the_memory_for_training_is_that_of_the_gpu(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "read_devices", lambda given: ("cuda:0",))
    monkeypatch.setattr(memory, "free_bytes", lambda device: {"cuda:0": 79, "cpu": 200}[device] << 30)
    edit(checkpoint / "config.json", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32)
    found = diagnoses(checkpoint, reading.tokenizer, acting.training_memory)["training memory"]
    assert found.verdict == "warn" and found.found.endswith("79.00 GiB are free on cuda:0")
    assert found.remedy.startswith("train adapters (--train.lora_rank 16 --train.gradient_checkpointing true), or")


# servers


def test_a_server_that_is_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_engine, "START_PATIENCE_S", 0.5)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    found = diagnoses(read_name(url), reading.tokenizer, reading.model, acting.log_probabilities)
    assert found["model"].verdict == "fail" and found["model"].found.startswith(f"{url} must answer within 0.5 s; got ")
    assert found["model"].remedy == "start the server, or correct its address"
    assert found["tokenizer"].verdict == found["log probabilities"].verdict == "skipped"


def test_a_server_without_log_probabilities_is_named() -> None:
    with fake_openai() as fake:
        every = (reading.tokenizer, reading.model, reading.template, acting.environment, acting.actions)
        found = diagnoses(read_name(fake.url), *every, acting.log_probabilities)
    assert found["model"].verdict == "ok" and found["actions"].verdict in ("ok", "warn")
    assert found["log probabilities"].verdict == "warn" and "reports none" in found["log probabilities"].found
    assert found["template"].verdict == "skipped"


def test_answers_that_are_cut_off_need_more_tokens(capfd: pytest.CaptureFixture[str]) -> None:
    def think(body: dict[str, Any], answer: dict[str, Any]) -> None:
        for choice in answer["choices"]:
            if body["max_tokens"] < 1000:
                choice["message"]["content"], choice["finish_reason"] = "Let me think: the page", "length"
            else:
                choice["message"]["content"] = f"COMMANDS: CLICK [{next(elements)}]"

    elements = cycle((1, 2))
    every = (reading.model, acting.environment, acting.actions)
    with fake_openai() as fake:
        fake.alters = think
        found = diagnoses(read_name(fake.url), *every)["actions"]
        asked = [body["max_tokens"] for body in fake.asked]
        assert main(["doctor", fake.url, "--model.max_new_tokens", "1024"]) == 0
    assert found.verdict == "fail" and "cut off after 96 tokens: 16" in found.found
    assert (
        found.remedy == "--model.max_new_tokens 1024 leaves room for thinking"
    )  # it knows no pattern, nor can it learn
    told = capfd.readouterr().out
    assert set(asked[-4:]) == {96} and "16 of 16 sampled actions could be read" in told
    assert "0 of 4 rankings of 2 actions could be read; --critic.max_new_tokens 1024 leaves room for thinking" in told


def test_a_server_with_other_weights_than_the_checkpoint_is_named(checkpoint: Path) -> None:
    with fake_openai(tokenizer=load_renderer(checkpoint).tokenizer) as fake:
        every = (reading.tokenizer, reading.model, acting.environment, acting.actions, acting.log_probabilities)
        found = diagnoses(read_name(f"{fake.url}?tokenizer={checkpoint}"), *every)["log probabilities"]
    assert found.verdict == "fail" and "nats per token on average" in found.found


def test_a_quantized_checkpoint_is_examined_and_its_adapters_are_advised(checkpoint: Path) -> None:
    found = diagnoses(as_fp8(checkpoint), *(check for check in CHECKS if check is not machine.chromium))
    assert {found["training memory"].remedy, *(each.verdict for each in found.values())} == {
        "train adapters (--train.lora_rank 16)",
        "ok",
    }
