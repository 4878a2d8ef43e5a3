"""Attacks on the command line: wrong words, names, values and files of settings."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from attack import agentq, attack

from agentq.policies.engine_names import embedded_base

DEAD = "http://127.0.0.1:9/v1"
ONE = "--eval.num_tasks=1"


def base(folder: Path, name: str = "base") -> str:
    """A copy of the embedded base in `folder`; its name."""
    shutil.copytree(embedded_base(), folder / name)
    return name


def said(folder: Path, *words: str, **more: object) -> str:
    """How `agentq WORDS` ended, and what it left in the folder, if anything."""
    before = set(folder.rglob("*"))
    answer = agentq(*words, cwd=folder, **more)  # type: ignore[arg-type]
    left = sorted(str(path.relative_to(folder)) for path in set(folder.rglob("*")) - before)
    return f"{answer}; left {left[0]}" if left else str(answer)


def refusals(folder: Path, commands: Sequence[Sequence[str]], holds: Callable[[str], bool] = lambda line: True) -> str:
    """How many commands exit with 2 and one line that `holds` and leave nothing; else the first that does not."""
    for words in commands:
        text = said(folder, *words)
        if not text.startswith("exit 2: agentq: ") or "; left " in text or not holds(text):
            return f"{' '.join(words)}: {text}"
    return f"{len(commands)} of {len(commands)} refused in one line"


def before_torch(folder: Path, *words: str) -> str:
    """How a command ended, and whether it imported torch first, which a fake torch package records."""
    (folder / "fake" / "torch").mkdir(parents=True)
    mark = folder / "fake" / "imported"
    (folder / "fake" / "torch" / "__init__.py").write_text(f"open({str(mark)!r}, 'w')\n")
    answer = agentq(*words, cwd=folder, env={"PYTHONPATH": str(folder / "fake")})
    return f"{answer}, {'after' if mark.exists() else 'before'} torch"


def refused(number: str, what: str, *words: str, says: str) -> None:
    """Register an attack that must be refused in one line and leave nothing."""
    attack(number, what, expected=f"exit 2: agentq: {says}")(lambda folder: said(folder, *words))


refused("3.1", "train a misspelt recipe", "train", "lop", says="no recipe 'lop'; did you mean 'loop'?")


@attack("3.3", "an environment that resembles none", expected="1 of 1 refused in one line")
def unknown_environment(folder: Path) -> str:
    return refusals(folder, [["train", "loop", "--env", "nope"]], lambda line: "'nope'; known: booking, shop" in line)


refused(
    *("3.4", "a misspelt site in Chromium", "train", "loop", "--env", "chromium/bookng"),
    says="no environment 'chromium/bookng'; did you mean 'chromium/booking'?",
)
refused(
    *("3.8", "a seed of twenty digits", "train", "loop", "--seed", "9" * 20, "--train.lora_rank", "4"),
    says=f"command line: run.seed must be less than 4294967296; got '{'9' * 20}'",
)
refused(
    *("3.10", "words that are no settings", "train", "loop", "extra", "words"),
    says="command line: settings must be written --section.key value; got 'extra'",
)
refused("3.12", "a misspelt command", "repot", "x", says="no command 'repot'; did you mean 'report'?")
refused(
    *("3.40", "more held-out tasks than there are", "eval", str(embedded_base()), "--eval.num_tasks=99999999999"),
    says="command line: eval.num_tasks must be less than or equal to 1000000000; got '99999999999'",
)


@attack("1.3", "settings that RFT does not read, as a review gave them", expected="5 of 5 refused, with who reads them")
def unread_settings(folder: Path) -> str:
    given = ("rft.num_tasks=999", "rft.epochs=77", "policy_gradient.kl_weight=0.5", "search.num_iterations=500")
    words = [f"--{setting}" for setting in (*given, "outcome_dpo.learning_rate=5")]
    found = refusals(folder, [["train", "rft", word] for word in words], lambda line: "; it is read by agentq " in line)
    return found.replace("in one line", "with who reads them").replace("refused with", "refused, with")


@attack(
    "3.2",
    "a misspelt environment, with a torch that takes long to import",
    expected="exit 2: agentq: no environment 'bookng'; did you mean 'booking'?, before torch",
)
def misspelt_env(folder: Path) -> str:
    return before_torch(folder, "train", "loop", "--env", "bookng")


@attack(
    "3.6",
    "a misspelt setting, with a torch that takes long to import",
    expected="exit 2: agentq: command line: unknown key 'run.sed'; did you mean 'run.seed'?, before torch",
)
def misspelt_setting(folder: Path) -> str:
    return before_torch(folder, "train", "loop", "--run.sed", "3")


@attack("3.7", "seeds that are no numbers, negative or broken", expected="3 of 3 refused in one line")
def seeds(folder: Path) -> str:
    commands = [["train", "loop", "--seed", value] for value in ("abc", "-1", "1.5")]
    return refusals(folder, commands, lambda line: "run.seed must be" in line)


@attack("3.9", "values out of range or of the wrong type", expected="5 of 5 refused in one line")
def values(folder: Path) -> str:
    given = ("train.max_grad_norm=nan", "train.max_grad_norm=inf", "train.learning_rate=0")
    words = [f"--{setting}" for setting in (*given, "policy_gradient.ratio=tokens", "run.constrained=maybe")]
    return refusals(folder, [["train", "loop", word] for word in words], lambda line: "must be" in line)


@attack("3.11", "an option without its value, a command without its argument", expected="2 of 2 refused in one line")
def usage(folder: Path) -> str:
    return refusals(folder, [["train", "loop", "--out"], ["eval"]])


@attack("3.13", "nine wrong files of settings", expected="9 of 9 refused in one line")
def wrong_files(folder: Path) -> str:
    texts = {
        "latin.toml": b"[run]\nenv = 'b\xf6king'\n",
        "torn.toml": b"[run\n",
        "section.toml": b"[runn]\nseed = 1\n",
        "key.toml": b"[run]\nsed = 1\n",
        "type.toml": b"[run]\nseed = 'one'\n",
        "float.toml": b"[run]\nseed = 1.5\n",
        "scalar.toml": b"run = 1\n",
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    (folder / "folder.toml").mkdir()
    names = [*texts, "folder.toml", "missing.toml"]
    return refusals(folder, [["demo", "--config", name] for name in names], lambda line: ".toml" in line)


@attack("3.14", "an empty file of settings", expected="exit 0")
def empty_file(folder: Path) -> str:
    (folder / "empty.toml").touch()
    answer = agentq("eval", base(folder), ONE, "--out=e", "--config", "empty.toml", cwd=folder)
    return "exit 0" if answer.code == 0 else str(answer)


@attack(
    "3.15",
    "ask for the settings that a recipe would have",
    expected="--run.num_tasks 3, --train.epochs 2; exit 2: agentq: agentq settings must be given a NAME with settings, "
    "as in agentq settings loop; got search.num_iterations",
)
def shown_settings(folder: Path) -> str:
    shown = agentq("settings", "loop", "--run.num_tasks", "3", cwd=folder).out.splitlines()
    found = [" ".join(line.split()[:2]) for line in shown if line.startswith(("--run.num_tasks", "--train.epochs"))]
    return f"{', '.join(sorted(found))}; {agentq('settings', '--search.num_iterations', '3', cwd=folder)}"


@attack(
    "3.30",
    "without torch, openai or vllm",
    expected=", ".join(f"pip install 'agentq-search[{extra}]'" for extra in ("train", "openai", "vllm")),
)
def missing_extras(folder: Path) -> str:
    hints = []
    for module, words in (("torch", ["demo"]), ("openai", ["eval", DEAD]), ("vllm", ["eval", f"vllm:{base(folder)}"])):
        (folder / module).mkdir()
        (folder / module / "sitecustomize.py").write_text(f"import sys; sys.modules['{module}'] = None\n")
        answer = agentq(*words, cwd=folder, env={"PYTHONPATH": str(folder / module)})
        if answer.code != 2 or len(answer.lines) != 1:
            return str(answer)
        hints.append(f"pip install {answer.lines[0].partition('pip install ')[2].split(']')[0]}]'")
    return ", ".join(hints)


@attack("3.31", "measure a dead server", expected="exit 2, one line about the server, in less than 60 s")
def dead_server(folder: Path) -> str:
    begun = time.monotonic()
    text = said(folder, "eval", f"{DEAD}#m")
    quick = time.monotonic() - begun < 60
    right = text.startswith(f"exit 2: agentq: {DEAD} must answer within 10 s") and "; left " not in text and quick
    return "exit 2, one line about the server, in less than 60 s" if right else text


class _Models(BaseHTTPRequestHandler):
    """A server with one model, m."""

    def do_GET(self) -> None:
        self._reply(200, b'{"object": "list", "data": [{"id": "m", "object": "model"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._reply(404, b'{"error": {"message": "The model does not exist", "code": "model_not_found"}}')

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@attack("3.32", "a model that the server does not have", expected="one line: must be asked for one of its models (m)")
def wrong_model(folder: Path) -> str:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = said(folder, "eval", f"http://127.0.0.1:{server.server_address[1]}/v1#nope")
        server.shutdown()
    right = text.startswith("exit 2: agentq: ") and "must be asked for one of its models (m); got 'nope'" in text
    return "one line: must be asked for one of its models (m)" if right and "; left " not in text else text


@attack("3.33", "live tasks with a wrong url or no goal, and a dead model", expected="4 of 4 refused in one line")
def wrong_urls(folder: Path) -> str:
    urls = [["run", "a goal", "--url", url, "--model", f"{DEAD}#m"] for url in ("nonsense", "ftp://a.test", "")]
    no_goal = ["run", " ", "--url", "http://a.test", "--model", f"{DEAD}#m"]
    musts = ("url must", "--url or --mcp must", "GOAL must")
    return refusals(folder, [*urls, no_goal], lambda line: any(must in line for must in musts))


@attack("3.34", "a budget that is negative or no number", expected="2 of 2 refused in one line")
def wrong_budgets(folder: Path) -> str:
    words = ["run", "a goal", "--url", "http://a.test", "--model", f"{DEAD}#m", "--calls"]
    return refusals(folder, [[*words, "-1"], [*words, "abc"]], lambda line: "--calls" in line)


@attack(
    "3.36",
    "a recipe of one's own that divides by zero",
    expected="exit 2: agentq: boom.py:2: ZeroDivisionError: division by zero (AGENTQ_TRACEBACK=1 shows the traceback); "
    "its traceback if asked for",
)
def raising_recipe(folder: Path) -> str:
    (folder / "boom.py").write_text("import agentq\nprint(1 / 0)\n")
    first = said(folder, "train", "boom.py")
    asked = agentq("train", "boom.py", cwd=folder, env={"AGENTQ_TRACEBACK": "1"})
    return f"{first}; its traceback if asked for" if asked.has_traceback and asked.code == 2 else str(asked)


@attack(
    "3.37",
    "a recipe file without a recipe",
    expected="exit 2: agentq: quick.py must define RECIPE, an agentq.recipes.recipe.Recipe; got NoneType",
)
def no_recipe(folder: Path) -> str:
    (folder / "quick.py").write_text("x = 1\n")
    return said(folder, "train", "quick.py")


@attack("3.43", "python -m agentq --version", expected="exit 0: agentq and a version")
def as_a_module(folder: Path) -> str:
    command = [sys.executable, "-m", "agentq", "--version"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    named = "agentq and a version" if done.stdout.startswith("agentq 0.") else done.stderr.strip()[-100:]
    return f"exit {done.returncode}: {named}"
