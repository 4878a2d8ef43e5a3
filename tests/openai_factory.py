"""A real HTTP server that plays OpenAI's API, or vLLM's with token ids, and misbehaves when told to."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

from agentq.agent.actions import format_action
from agentq.agent.prompts import policy_messages
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.protocol import SampledAnswer, SampleRequest
from agentq.types import Command, EnvAction, History, Observation, Status

ACTIONS = (
    *(format_action(EnvAction(Command.CLICK, element=i)) for i in range(1, 7)),
    format_action(EnvAction(Command.SCROLL, text="DOWN")),
    format_action(EnvAction(Command.STOP), status=Status.DONE),
    "no action at all",
)
LIKELIEST = (("The", -0.5), (" B", -3.0), ("B", -1.0), ("A", -4.0), ("\n", -5.0))  # how chats begin


class FakeOpenAI:
    """Answers with one of `ACTIONS`, which follows from the prompt and the seed.

    `faults` are what the next requests meet, in this order; none when it is empty. `tokenizer`: as vLLM, with token
    ids, and weights that can be exchanged and that a restart loses; without one it has none of these routes. Prefixes
    that it has cached are of the weights before, until it is told to forget them.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        root: Path | str = "somewhere/else",
        honours_n: bool = True,
        honours_seeds: bool = True,
        one_seed: bool = False,
        likeliest: bool = False,
    ) -> None:
        self.tokenizer, self.honours_n, self.honours_seeds = tokenizer, honours_n, honours_seeds
        self.one_seed = one_seed  # samples as if it had always been asked with the same
        self.likeliest = likeliest  # chats tell the likeliest tokens
        self.processed_logprobs = False
        self.takes_tools = True
        self.refuses: Callable[[dict[str, Any]], Any] = lambda body: ""  # why it answers a body with HTTP 400
        self.refusal_status = 400
        self.alters: Callable[[dict[str, Any], dict[str, Any]], None] = lambda body, answer: None
        self.told: dict[str, dict[str, Any]] = {}  # by path, what it tells of its tokenizer
        self.lists: tuple[Any, int] | None = None  # what /models answers, with its status, instead of its models
        self.faults: deque[str] = deque()
        self.loaded: list[str] = []  # checkpoints, in this order
        self.asked: list[dict[str, Any]] = []  # the bodies of all requests
        self.keys: set[str] = set()  # those of requests for choices
        self.stalled, self.hung_up = Event(), Event()
        self.at_once: Barrier | None = None  # requests that wait for one another
        self.most_at_once = self._under_way = 0
        self.root, self.device = str(root), "cuda"
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Listen, on the same port as ever, with the weights of the start."""
        self.weights = self.cached = self.root
        self.weight_version, self.paused, self.adapters = "default", False, dict[str, str]()
        self._connections: list[socket.socket] = []
        self._http = _Http(self, ("127.0.0.1", self._port))
        self._port = self._http.server_address[1]
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Stop listening and break off every connection."""
        self._http.shutdown()
        self._http.server_close()
        for connection in self._connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
        prompt = body["messages"] if chat else body["prompt"]
        if isinstance(prompt, str):
            prompt = self.tokenizer(prompt)["input_ids"]
        n = body.get("n", 1) if self.honours_n else 1
        choices = [self._choice(body, prompt, i, chat=chat) for i in range(n)]
        generated = sum(len(choice.get("token_ids", ())) for choice in choices) or 7 * n
        usage = {"prompt_tokens": len(prompt), "completion_tokens": generated}
        usage["prompt_tokens_details"] = {"cached_tokens": 2}
        return {"object": "text_completion", "model": "tiny", "choices": choices[::-1], "usage": usage}

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Note how many requests are answered at once."""
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            if self.at_once:
                self.at_once.wait(timeout=10)
            yield
        finally:
            self._under_way -= 1

    def _choice(self, body: dict[str, Any], prompt: Any, index: int, *, chat: bool) -> dict[str, Any]:
        honoured = self.honours_seeds and "seed" in body
        seed = index + (body["seed"] if honoured else 1000 * len(self.asked)) * (not self.one_seed)
        served = [self.cached, self.adapters.get(body["model"])] if self.weights != self.root or self.adapters else []
        key = json.dumps([prompt, 0 if body["temperature"] == 0 else seed, served]).encode()
        number = int.from_bytes(hashlib.sha256(key).digest()[:4], "big")
        text = ACTIONS[number % len(ACTIONS)]
        choice = {"index": index, "finish_reason": "stop"}
        if chat:
            told = [{"token": token, "logprob": logp} for token, logp in LIKELIEST if self.likeliest]
            logprobs = {"content": [{"token": "B", "logprob": -0.5, "top_logprobs": told}]}
            message = {"role": "assistant", "content": text}
            if body.get("tools"):
                function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
                message |= {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}
                choice["finish_reason"] = "tool_calls"
            elif "TOOLS:" in str(prompt):
                message["content"] = 'COMMANDS: {"name": "add", "arguments": {"a": 1, "b": 2}}'
            return choice | {"message": message, "logprobs": logprobs}
        if (letters := body.get("structured_outputs", {}).get("regex", "")).startswith("[A"):
            return choice | self._letter(letters[1:-1], body, prompt)
        ids = [*self.tokenizer(text)["input_ids"], self.tokenizer.eos_token_id]
        scale = body["temperature"] if self.processed_logprobs else 1
        told = [-0.25 - (token % 7) / scale for token in ids]
        likeliest = [{"a": logp, "b": logp - 1 / scale} for logp in told]
        logprobs = {"token_logprobs": told, "top_logprobs": likeliest if body["logprobs"] else None}
        return choice | {"text": text, "token_ids": ids, "prompt_token_ids": prompt, "logprobs": logprobs}

    def _letter(self, letters: str, body: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
        """The last letter, which has the greatest log-probability of those that are told."""
        logps = {letter: -1.0 * (len(letters) - place) for place, letter in enumerate(letters)}
        told = dict(list(logps.items())[-body["logprobs"] :])
        ids = self.tokenizer(letters[-1])["input_ids"]
        logprobs = {"token_logprobs": [-1.0], "top_logprobs": [told]}
        return {
            "text": letters[-1],
            "token_ids": ids,
            "prompt_token_ids": prompt,
            "logprobs": logprobs,
            "finish_reason": "length",
        }


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fake: FakeOpenAI, address: tuple[str, int]) -> None:
        self.fake = fake
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.fake._connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_GET(self) -> None:
        fake = self.server.fake
        if self.path in ("/weight_info", "/server_info"):
            self._send({"weight_version": fake.weight_version, "vllm_config": f"device_config={fake.device}"})
            return
        if self.path != "/v1/models":
            self._send(
                fake.told.get(self.path, {"error": {"message": "no such route"}}), 200 * (self.path in fake.told) or 404
            )
            return
        if fake.lists:
            self._send(*fake.lists)
            return
        context = 2048 if fake.tokenizer else None
        self._send(
            {"data": [{"id": id, "root": fake.root, "max_model_len": context} for id in ("tiny", *fake.adapters)]}
        )

    def do_POST(self) -> None:
        fake, chat = self.server.fake, self.path.endswith("/chat/completions")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if not chat and fake.tokenizer is None:
            self._send({"error": {"message": "no such route"}}, status=404)
        elif not self.path.endswith("/completions"):
            self._send(*self._weights(body))
        elif not self.path.startswith(("/v1/chat/completions", "/v1/completions")):
            self._send({"error": {"message": "no such route"}}, status=404)
        elif body["model"] not in ("tiny", *fake.adapters):
            self._send({"error": {"message": "no such model"}}, status=404)
        else:
            fake.asked.append(body)
            fake.keys.add(self.headers["Authorization"])
            fault = fake.faults.popleft() if fake.faults else ""
            if "tools" in body and not fake.takes_tools:
                self._send({"error": {"message": "no tools here"}}, status=400)
                return
            if refusal := fake.refuses(body):
                error = {"error": {"message": refusal, "type": "invalid_request_error"}}
                self._send(error if isinstance(refusal, str) else refusal, status=fake.refusal_status)
                return
            with fake.counted():
                answer = fake.answer(body, chat=chat)
                fake.alters(body, answer)
                self._misbehave(fault, answer)

    def _weights(self, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """vLLM's routes for weights; it reads a directory that has a config, whatever is in its tensors."""
        fake = self.server.fake
        match self.path:
            case "/pause?mode=abort" | "/resume":
                fake.paused = self.path != "/resume"
            case "/collective_rpc":
                fake.weights = body["kwargs"]["weights_path"]
                fake.loaded.append(fake.weights)
                if not fake.paused or not (Path(fake.weights) / "config.json").exists():
                    return {"error": {"message": "no config.json"}}, 500
            case "/reset_prefix_cache":
                fake.cached = fake.weights
            case "/update_weight_version":
                fake.weight_version = body["new_version"]
            case "/v1/load_lora_adapter":
                if not (Path(body["lora_path"]) / "adapter_model.safetensors").exists():
                    return {"error": {"message": "no adapter_model.safetensors"}}, 400
                fake.adapters[body["lora_name"]] = body["lora_path"]
            case "/v1/unload_lora_adapter":
                del fake.adapters[body["lora_name"]]
            case _:
                raise AssertionError(self.path)
        return {"success": True}, 200

    def _misbehave(self, fault: str, answer: dict[str, Any]) -> None:
        fake, (first, *_) = self.server.fake, answer.get("choices") or [{}]
        match fault:
            case "429" | "503":
                self._send({"error": {"message": "slow down"}}, status=int(fault), headers={"Retry-After": "0.02"})
            case "400" | "401" | "500":
                self._send({"error": {"message": "it\nhurts"}}, status=int(fault))
            case "stall":
                fake.stalled.set()
                self.connection.recv(1)  # until the client hangs up
                fake.hung_up.set()
            case "truncated":
                self._send(answer, cut=40)
            case "malformed":
                self._send(b'{"choices": [{"index"')
            case "no choices":
                self._send(answer | {"choices": []})
            case "null choices":
                self._send(answer | {"choices": None})
            case "counts":
                first["logprobs"]["token_logprobs"].pop()
                self._send(answer)
            case "broken off":
                first["finish_reason"] = "abort"
                self._send(answer)
            case "die":
                Thread(target=fake.kill).start()
                self.connection.recv(1)
            case "":
                self._send(answer)
            case _:
                raise AssertionError(fault)

    def _send(self, answer: Any, status: int = 200, *, headers: dict[str, str] | None = None, cut: int = 0) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])
        self.close_connection = self.close_connection or cut > 0

    def log_message(self, *_: Any) -> None:
        """Not on stderr."""


@contextmanager
def fake_openai(**settings: Any) -> Iterator[FakeOpenAI]:
    """A server, killed in the end."""
    fake = FakeOpenAI(**settings)
    try:
        yield fake
    finally:
        fake.kill()


HISTORY = History("book a table", Observation("link Blue Harbor Grill [3]"))


def ask(engine: OpenAIEngine, **settings: Any) -> list[SampledAnswer]:
    """Answers to a first page: three, with a seed, unless `settings` of the request say otherwise."""
    prompt = engine.render(HISTORY, policy_messages, max_new_tokens=40)
    request = SampleRequest(prompt, **{"k": 3, "seed": 5, "max_new_tokens": 40, **settings})
    return asyncio.run(engine.sample(request))
