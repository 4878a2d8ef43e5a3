"""Attacks on the command line: wrong names, values and files, directories that hold something else, lost inputs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from attack import Answer, agentq, attack

from agentq.cli import embedded_base
from agentq.config import load
from agentq.store import RunStore

DEAD = "http://127.0.0.1:9/v1"
ONE = "--eval.num_tasks=1"
NO_ROOM = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
NO_ROOM += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
NO_RIGHTS = "import ctypes; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); "  # root without its right to write anywhere
GO = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'agentq.cli', *sys.argv[1:]])"


def base(folder: Path, name: str = "base") -> str:
    """A copy of the embedded base in `folder`; its name."""
    shutil.copytree(embedded_base(), folder / name)
    return name


def finished_demo(folder: Path) -> str:
    """A run of `agentq demo` where it goes by default, with a checkpoint; the checkpoint's path."""
    with RunStore.open(folder / "runs" / "demo", {"command": "demo", **load().to_dict()}) as store:
        store.log("rft/train", 1, loss=0.5)
    return f"runs/demo/checkpoints/{Path(base(folder / 'runs' / 'demo' / 'checkpoints', 'rft')).name}"


def run_of_a_ladder(path: Path) -> None:
    """A run of `agentq ladder` with default settings and one metric."""
    with RunStore.open(path, {"command": "ladder", **load().to_dict()}) as store:
        store.log("base/eval", 1, loss=0.5)


def said(folder: Path, *words: str, **more: object) -> str:
    """How `agentq WORDS` ended; what it left in the folder, if anything."""
    before = set(folder.rglob("*"))
    answer = agentq(*words, cwd=folder, **more)  # type: ignore[arg-type]
    left = sorted(str(path.relative_to(folder)) for path in set(folder.rglob("*")) - before)
    return f"{answer}; left {left[0]}" if left else str(answer)


def refusals(folder: Path, commands: Sequence[Sequence[str]], holds: Callable[[str], bool] = lambda line: True) -> str:
    """How many commands exit with 2 and one line that `holds`, and leave nothing; else the first that does not."""
    for words in commands:
        text = said(folder, *words)
        if not text.startswith("exit 2: agentq: ") or "; left " in text or not holds(text):
            return f"{' '.join(words)}: {text}"
    return f"{len(commands)} of {len(commands)} refused in one line"


def limited(limit: str, folder: Path, *words: str) -> Answer:
    """Run `agentq WORDS` as a process that has lost a right or a resource."""
    command = [sys.executable, "-c", limit + GO, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return Answer(done.returncode, done.stdout, done.stderr)


def before_torch(folder: Path, *words: str) -> str:
    """How a command ended, and whether it imported torch first: a package of that name here tells."""
    (folder / "fake" / "torch").mkdir(parents=True)
    mark = folder / "fake" / "imported"
    (folder / "fake" / "torch" / "__init__.py").write_text(f"open({str(mark)!r}, 'w')\n")
    answer = agentq(*words, cwd=folder, env={"PYTHONPATH": str(folder / "fake")})
    return f"{answer}, {'after' if mark.exists() else 'before'} torch"


def refused(number: str, what: str, *words: str, says: str) -> None:
    """Register an attack that must be refused in one line and leave nothing."""
    attack(number, what, expected=f"exit 2: agentq: {says}")(lambda folder: said(folder, *words))


refused("3.1", "train a misspelt recipe", "train", "lop", says="no recipe 'lop'; did you mean 'loop'?")
refused(
    *("3.3", "an environment that resembles none", "train", "loop", "--env", "nope"),
    says="no environment 'nope'; known: booking, shop, chromium/booking, chromium/shop, miniwob/PAGE, NAME@HOST:PORT",
)
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
    given = ("search.temperature=nan", "search.temperature=inf", "train.learning_rate=0")
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
    expected="--run.num_tasks 3, --search.temperature 1.0; exit 2: agentq: agentq settings takes no settings; "
    "got '--search.num_iterations': name what is to read them, as in agentq settings loop",
)
def shown_settings(folder: Path) -> str:
    shown = agentq("settings", "loop", "--run.num_tasks", "3", cwd=folder).out.splitlines()
    found = [
        " ".join(line.split()[:2]) for line in shown if line.startswith(("--run.num_tasks", "--search.temperature"))
    ]
    return f"{', '.join(sorted(found))}; {agentq('settings', '--search.num_iterations', '3', cwd=folder)}"


@attack(
    "3.16",
    "measure a checkpoint that is not there, then one that is, into the same directory",
    expected="exit 2: agentq: the model must be a transformers checkpoint by name or path; got /no/such/path, which is "
    "not there, then exit 0",
)
def missing_checkpoint(folder: Path) -> str:
    first = said(folder, "eval", "/no/such/path", "--out=e1")
    return f"{first}, then exit {agentq('eval', base(folder), ONE, '--out=e1', cwd=folder).code}"


@attack(
    "3.17",
    "measure a server that is not there, then a checkpoint, into the same directory",
    expected="one line about the server, nothing left, then exit 0",
)
def missing_server(folder: Path) -> str:
    first = said(folder, "eval", DEAD, "--out=e3")
    if not first.startswith(f"exit 2: agentq: {DEAD} must answer") or "; left " in first:
        return first
    then = agentq("eval", base(folder), ONE, "--out=e3", cwd=folder)
    return f"one line about the server, nothing left, then exit {then.code}"


@attack(
    "3.18",
    "measure a demo's checkpoint with --clean, by default and into the demo's directory",
    expected="exit 0 and the checkpoint is there; exit 2: agentq: runs/demo was made by agentq demo; got agentq eval: "
    "choose another --out and the checkpoint is there",
)
def cleaned_input(folder: Path) -> str:
    checkpoint, ends = finished_demo(folder), []
    for out in ([], ["--out=runs/demo"]):
        answer = agentq("eval", checkpoint, ONE, "--clean", *out, cwd=folder)
        there = "is" if (folder / checkpoint / "model.safetensors").exists() else "is not"
        end = "exit 0" if answer.code == 0 else str(answer)
        ends.append(f"{end} and the checkpoint {there} there")
    return "; ".join(ends)


@attack("3.19", "measure what is not there with --clean after a demo", expected="exit 2, the demo is there")
def cleaned_for_nothing(folder: Path) -> str:
    checkpoint = finished_demo(folder)
    code = agentq("eval", "/no/such", "--clean", cwd=folder).code
    whole = (folder / "runs/demo/run.sqlite").exists() and (folder / checkpoint / "model.safetensors").exists()
    return f"exit {code}, the demo is {'' if whole else 'not '}there"


@attack("3.20", "measure a demo's checkpoint without --out", expected="exit 0")
def measured_after_a_demo(folder: Path) -> str:
    answer = agentq("eval", finished_demo(folder), ONE, cwd=folder)
    return "exit 0" if answer.code == 0 else str(answer)


@attack("3.21", "checkpoints with a damaged file: weights, tokenizer, settings", expected="3 of 3 refused in one line")
def damaged_checkpoints(folder: Path) -> str:
    commands = []
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        damaged = folder / base(folder, f"damaged-{file.partition('.')[0]}") / file
        damaged.write_bytes(damaged.read_bytes()[:100])
        commands.append(["eval", damaged.parent.name, "--out=e"])
    return refusals(folder, commands, lambda line: "got damaged-" in line)


@attack(
    "3.22",
    "measure an empty directory",
    expected="exit 2: agentq: the model must be a transformers checkpoint by name or path; got empty, which has no "
    "config.json",
)
def empty_checkpoint(folder: Path) -> str:
    (folder / "empty").mkdir()
    return said(folder, "eval", "empty")


@attack(
    "3.23",
    "a run directory in /proc, below a file, and where nothing may be written",
    expected="3 of 3 refused in one line",
)
def unwritable(folder: Path) -> str:
    (folder / "afile").touch()
    (folder / "closed").mkdir(mode=0o555)
    for out in ("/proc/x", "afile/x", "closed/x"):
        answer = limited(NO_RIGHTS, folder, "eval", base(folder, f"base{len(out)}"), f"--out={out}")
        if not str(answer).startswith(f"exit 2: agentq: --out must be a directory that can be written to; got {out}: "):
            return f"{out}: {answer}"
    return "3 of 3 refused in one line"


@attack(
    "3.24",
    "the report of a run that may only be read",
    expected="exit 2: agentq: run/report.html must be a file that can be written; got Permission denied: choose "
    "another by agentq report RUN --out FILE; exit 0 with --out",
)
def read_only_run(folder: Path) -> str:
    run_of_a_ladder(folder / "run")
    (folder / "run").chmod(0o555)
    first = limited(NO_RIGHTS, folder, "report", "run")
    second = limited(NO_RIGHTS, folder, "report", "run", "--out=page.html")
    written = "with --out" if (folder / "page.html").exists() else "without a page"
    return f"{first}; exit {second.code} {written}"


@attack("3.25", "a disk that is full at the first page of the database", expected="exit 2, one line: disk is full")
def full_disk(folder: Path) -> str:
    answer = limited(NO_ROOM, folder, "eval", base(folder), ONE, "--out=e")
    full = len(answer.lines) == 1 and any(word in answer.err for word in ("full", "large", "space"))
    return f"exit {answer.code}, one line: disk is full" if full else f"{answer} {answer.err[-300:]}"


@attack("3.26", "runs with a damaged or missing file", expected="5 of 5 refused in one line")
def damaged_runs(folder: Path) -> str:
    def damage(name: str, file: str, data: bytes | None) -> list[str]:
        run_of_a_ladder(folder / name)
        (folder / name / file).unlink(missing_ok=True)
        if data is not None:
            (folder / name / file).write_bytes(data)
        return ["report", name]

    commands = [
        damage("sqlite", "run.sqlite", b"not a database" + bytes(4096)),
        damage("config", "config.json", b"{"),
        damage("summary", "summary.json", b"{"),
        damage("missing", "run.sqlite", None),
        ["ladder", "--out", damage("nothing", "run.sqlite", b"")[1]],
    ]
    return refusals(folder, commands)


REMEDY = "give what it was made with, another --out, or --clean to delete it and start over"


@attack(
    "3.27",
    "the directory of another checkpoint, and of another command",
    expected=f"exit 2: agentq: e was made with checkpoint base; got other: {REMEDY}; exit 2: agentq: e was made by "
    "agentq eval; got agentq train rft: choose another --out",
)
def directory_of_another(folder: Path) -> str:
    agentq("eval", base(folder), ONE, "--out=e", cwd=folder)
    config = folder / base(folder, "other") / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "note": 1}))
    return f"{said(folder, 'eval', 'other', ONE, '--out=e')}; {said(folder, 'train', 'rft', '--out=e')}"


@attack(
    "3.28",
    "a finished run with more held-out tasks",
    expected=f"exit 2: agentq: e was made with --eval.num_tasks 1; got 17: {REMEDY}",
)
def extended(folder: Path) -> str:
    agentq("eval", base(folder), ONE, "--out=e", cwd=folder)
    return said(folder, "eval", "base", "--eval.num_tasks=17", "--out=e")


@attack(
    "3.29",
    "a second writer in one directory",
    expected="exit 2: agentq: tw must have one writer; it is open in another process",
)
def second_writer(folder: Path) -> str:
    config = {"command": "ladder", **load().to_dict()}
    with RunStore.open(folder / "tw", config) as store:
        store.log("base/eval", 1, loss=0.5)
        return str(agentq("ladder", "--out=tw", cwd=folder))


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
    """A server that has one model, m."""

    def do_GET(self) -> None:
        body = b'{"object": "list", "data": [{"id": "m", "object": "model"}]}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


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
    return refusals(folder, [*urls, no_goal], lambda line: "url must" in line or "GOAL must" in line)


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


@attack(
    "3.39",
    "Ctrl-C in a run whose directory has a blank in its name, then the line that it prints",
    expected="exit 130; the line has the words that were given",
)
def interrupted(folder: Path) -> str:
    words = ["eval", base(folder), "--out", "tr 1é", "--eval.num_tasks", "500"]
    command = [sys.executable, "-m", "agentq.cli", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env={**os.environ}, **pipes) as process:  # type: ignore[call-overload]
        while process.poll() is None and not (folder / "tr 1é" / "config.json").exists():
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    line = err.strip().splitlines()[-1].partition("go on with: ")[2]
    same = "the" if shlex.split(line)[1:] == words else "not the"
    return f"exit {process.returncode}; the line has {same} words that were given"


@attack("3.43", "python -m agentq --version", expected="exit 0: agentq and a version")
def as_a_module(folder: Path) -> str:
    command = [sys.executable, "-m", "agentq", "--version"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    named = "agentq and a version" if done.stdout.startswith("agentq 0.") else done.stderr.strip()[-100:]
    return f"exit {done.returncode}: {named}"
