"""An environment to be served in tests: TYPE [1] names a mishap. Its page tells of its process."""

import os
import subprocess
import sys
import time
from pathlib import Path


def hang():
    while True:
        pass


def linger():
    """Start a process of another session that outlives everybody, then hang without using the processor."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)  # lingers"], start_new_session=True)
    while True:
        time.sleep(3600)


def give(**result):
    return {"text": "heading odd", **result}


MISHAPS = {
    "hang": hang,
    "linger": linger,
    "die": lambda: os.kill(os.getpid(), 9),
    "raise": lambda: {}["nothing"],
    "typo": lambda: give(truncate=True),
    "nan": lambda: give(reward=float("nan")),
    "number": lambda: {"text": 5},
    "object": lambda: give(url=object()),
    "none": lambda: None,
}


class Frail:
    name, max_steps = "frail", 20
    deadline_s = float(os.environ.get("FRAIL_DEADLINE_S", "60"))

    def reset(self, seed):
        once = Path(os.environ["FRAIL_FOLDER"]) / str(seed)
        if seed == 13 or (seed == 7 and not once.exists()):
            once.touch()
            raise RuntimeError(f"seed {seed} does not start\nfor some reason")
        if seed in (20, 21):
            once.touch()
            self.meet(once.with_name(str(41 - seed)))
        self.resets = getattr(self, "resets", 0) + 1
        said = f"Seed {seed}" if seed != 5 else f"Reset {self.resets}"
        return {"instruction": said, "text": self.page()}

    def meet(self, other):
        """Wait until another session has come here."""
        until = time.monotonic() + 60
        while not other.exists():
            if time.monotonic() > until:
                raise TimeoutError("no other session is reset meanwhile")
            time.sleep(0.01)

    def step(self, command, element, text):
        print("an environment may print")
        if command == "TYPE":
            return MISHAPS[text]()
        if command == "ASK_USER":
            return {"text": self.page(), "answer": "as you\nlike"}
        if command == "GOTO":
            return {"text": "text a\r\x85b\ntext " + "c " * 9000}
        return {"text": self.page(), "reward": 0.5, "success": True, "truncated": command == "SCROLL"}

    def page(self):
        return f"heading {os.getpid()} {os.environ['AGENTQ_WORKER']} {os.environ['TMPDIR']}\ntextbox Mishap [1]"


def make():
    return Frail()


class Flaky:
    """An environment of agentq's whose steps and resets fail now and then. `rng` decides; `faults` counts."""

    def __init__(self, env, rng, steps=0.05, resets=0.0, kind="session_lost"):
        self.env, self.rng, self.steps, self.resets, self.kind = env, rng, steps, resets, kind
        self.name, self.max_steps, self.faults = env.name, env.max_steps, 0
        self.shown = self.lost = None

    def __getattr__(self, name):
        return getattr(self.env, name)

    def reset(self, task):
        if self.rng.random() < self.resets:
            self.faults += 1
            raise RuntimeError(f"seed {task.seed} does not start\nfor some reason")
        self.lost, self.shown = False, self.env.reset(task)
        return self.shown

    def step(self, env_action):
        from agentq.errors import EnvError
        from agentq.types import StepResult

        if self.lost:
            raise EnvError("step needs a session; this one is lost")
        if self.rng.random() < self.steps:
            self.faults, self.lost = self.faults + 1, True
            message = "the process ended"
            return StepResult(self.shown, truncated=True, error_kind=self.kind, error_message=message)
        result = self.env.step(env_action)
        self.shown = result.observation
        return result

    def restore(self, token):
        self.lost, self.shown = False, self.env.restore(token)
        return self.shown

    def fork(self):
        import random

        return Flaky(self.env.fork(), random.Random(self.rng.random()), self.steps, self.resets, self.kind)
