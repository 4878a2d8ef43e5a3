"""Attacks on policies: page text that might become control tokens, models whose distribution an engine might miss.

4.8 and 4.9 count the control tokens that pages add to prompts, over the marks of 21 model families in many spellings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from architectures import ARCHITECTURES, load_plain, plain_logps, sampled, worst, write_checkpoint
from attack import attack
from chat_families import FAMILIES, Family, history_of, make_tokenizer, spellings

from agentq.agent.prompts import policy_messages
from agentq.errors import ModelError
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.renderer import Renderer
from agentq.policies.transformers_engine import TransformersEngine
from agentq.types import History

EXACT = "at most 1e-5 nats or refused"


def distribution(name: str, folder: Path) -> str:
    """The worst difference of a sampled token's log-probability from the model's own forward pass."""
    checkpoint = write_checkpoint(name, folder)
    try:
        engine = TransformersEngine(checkpoint)
    except ModelError:
        return EXACT
    samples = sampled(engine)
    apart = worst([sample.logps for sample in samples], plain_logps(load_plain(checkpoint), samples))
    return EXACT if apart <= 1e-5 else f"{apart:.2g} nats"


class _TextOnly(BaseHTTPRequestHandler):
    """The part of OpenAI's API that an engine calls when it is made."""

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": "tiny"}]} if self.path == "/v1/models" else {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = {"finish_reason": "stop", "message": {"content": "STATUS: DONE"}}
        choices = [said | {"index": i} for i in range(asked["n"])]
        self._send(200 if self.path.endswith("/chat/completions") else 404, {"choices": choices})

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def text_only_server() -> Iterator[str]:
    """The URL of a server that accepts messages only."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _TextOnly)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


NOTHING = "0 control tokens from pages"


def added(family: Family, encode: Callable[[History], np.ndarray], tokenizer: Any) -> int:
    """The control tokens that a family's marks, in every spelling, add to prompts; missing ones count too."""
    controls = {id for id, token in tokenizer.added_tokens_decoder.items() if token.content.strip()}

    def count(page: str) -> int:
        return sum(id in controls for id in encode(history_of(f"{page} text")).tolist())

    harmless = count("text")
    return sum(abs(count(page) - harmless) for mark in family.marks if mark.strip() for page in spellings(mark))


@attack("4.8", "control marks in page text, an engine that is sent messages", expected=NOTHING)
def marks_in_messages(folder: Path) -> str:
    """A text-only server gets the messages and encodes them with a tokenizer that agentq does not know."""
    found = 0
    with text_only_server() as url:
        engine = OpenAIEngine(url)
        try:
            for family in FAMILIES:
                renderer = Renderer(tokenizer := make_tokenizer(family), [3], 1 << 20)

                def encode(history: History, renderer: Renderer = renderer) -> np.ndarray:
                    return renderer.encode(engine.render(history, policy_messages, max_new_tokens=1).messages)

                found += added(family, encode, tokenizer)
        finally:
            engine.close()
    return f"{found} control tokens from pages"


@attack("4.9", "added tokens that are not special (<think>, turn marks of DeepSeek) in page text", expected=NOTHING)
def added_tokens(folder: Path) -> str:
    """agentq has the tokenizer."""
    found = 0
    for family in FAMILIES:
        renderer = Renderer(tokenizer := make_tokenizer(family), [3], 1 << 20)

        def encode(history: History, renderer: Renderer = renderer) -> np.ndarray:
            return renderer.render(history, policy_messages, max_new_tokens=1).ids

        found += added(family, encode, tokenizer)
    return f"{found} control tokens from pages"


for number, name in enumerate(ARCHITECTURES, 1):
    what = f"{name}: sampled log-probabilities against the model's own forward pass"
    attack(f"2.8.{number}", what, expected=EXACT)(partial(distribution, name))
