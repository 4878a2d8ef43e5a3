"""The worker process: one Chromium under Playwright, many sessions. The only file that imports Playwright.

Started by pool.py as `python -m agentq.envs.browser.worker`; speaks wire.py over stdin and stdout. A thread reads the
pool's messages. When the pool is gone the stream ends, and the thread ends everything at once even if the event loop
hangs, so no browser outlives its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import threading
from typing import Any

from playwright.async_api import Error, async_playwright

from agentq.envs.browser import processes, wire
from agentq.envs.browser.context import Gone, Refusal, SessionSettings
from agentq.envs.browser.session import CALLS, BrowserSession

PICTURES = ("screenshot", "picture")  # calls whose reply has no text to mask
_PATIENCE = 0.8  # share of the pool's deadline after which a call is given up
_ASK = 0.05  # share of it for the page to answer another question
_CLOSE = 0.1  # share of it for its session to close
ARGS = [
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # only proxy.py resolves names
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--dns-prefetch-disable",
    "--disable-dev-shm-usage",  # 64 MB in most containers
    "--disable-gpu",
]


async def launch(playwright: Any, executable: str, *, sandbox: bool) -> Any:
    """Chromium from the setting ("" for none), Playwright's own, or PATH. Raises Error if none starts."""
    found = next(filter(None, map(shutil.which, processes.CHROMIUMS)), None)
    choices = [executable] if executable else [None, found] if found else [None]
    for choice in choices:
        try:
            return await playwright.chromium.launch(executable_path=choice, args=ARGS, chromium_sandbox=sandbox)
        except Error as error:
            last = error
            if not _is_missing(error):
                break
    raise last


def _is_missing(error: Error) -> bool:
    return "xecutable doesn't exist" in error.message


def _failure(error: Error, *, sandbox: bool) -> wire.Message:
    """Why no browser started; `missing` if there is none, `unsandboxed` if its sandbox is what failed."""
    return {
        "id": 0,
        "error": brief(error),
        "missing": _is_missing(error),
        "unsandboxed": processes.sandbox_error(error.message) if sandbox else "",
    }


class BrowserWorker:
    """The sessions of one browser, and the loop that serves calls on them."""

    def __init__(self, browser: Any, output: Any) -> None:
        self.browser, self.output = browser, output
        self.sessions: dict[int, BrowserSession] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def accept(self, message: wire.Message) -> None:
        """Serve one call concurrently; the pool sends one at a time for each session."""
        task = asyncio.create_task(self._serve(message))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _serve(self, message: wire.Message) -> None:
        reply: wire.Message = {"id": message["id"]}
        before = self.sessions.get(message["session"])
        call = asyncio.create_task(self._call(message["session"], message["call"], message["args"]))
        try:
            if not await self._ends(call, message):
                said = await self._hangs(call, message)
                if not await self._closes(message["session"]):
                    wire.write(self.output, reply | {"hangs": said})
                    return  # the pool ends this process
                call.cancel()
                raise Gone(said)
            reply["result"] = call.result()
        except Refusal as error:
            reply["result"] = {"refused": (error.kind, str(error))}
        except Exception as error:  # the pool must learn of any failure before its deadline
            session = self.sessions.get(message["session"])
            lacks = session is None and message["call"] != "open"
            gone = isinstance(error, Gone) or lacks or (session is not None and session.context.crash.is_set())
            reply |= {"error": brief(error), "gone": gone}
        session = self.sessions.get(message["session"], before)  # one that has just closed reports its counts
        if session is not None and message["call"] not in PICTURES:
            reply = session.context.secrets.mask(reply)
        wire.write(self.output, reply)

    async def _ends(self, call: asyncio.Task[Any], message: wire.Message) -> bool:
        """Whether a call ends in time.

        Raises:
            Gone: when a renderer of the session crashes. Chromium never answers what it was asked.
        """
        session = self.sessions.get(message["session"])
        crashes = asyncio.Event() if session is None or message["call"] == "close" else session.context.crash
        crash = asyncio.create_task(crashes.wait())
        try:
            await asyncio.wait({call, crash}, timeout=self._patience_s(message), return_when=asyncio.FIRST_COMPLETED)
            if crash.done() and not call.done():
                call.cancel()
                raise Gone("the page crashed")
        finally:
            crash.cancel()
        return call.done()

    async def _hangs(self, call: asyncio.Task[Any], message: wire.Message) -> str:
        """That a call hangs, where, and whether its page answers at all."""
        session = self.sessions.get(message["session"])
        deadline_s = self._deadline_s(message)
        where = f"{message['call']} must answer within {deadline_s} s; it hangs in {waits_in(call)}"
        if session is None:
            return where
        context, answers = session.context, "does not answer another question either"
        page = context.current.page
        with contextlib.suppress(TimeoutError, Error):
            async with asyncio.timeout(_ASK * context.settings.deadline_s):
                cdp = await context.playwright.new_cdp_session(page)
                await cdp.send("Runtime.evaluate", {"expression": "0"})
                answers = "answers another question"
        return f"{where}; {context.secrets.mask(page.url)[:100]} {answers}"

    async def _closes(self, number: int) -> bool:
        """Whether a session that hangs could be closed, so that the others of this process go on."""
        session = self.sessions.get(number)
        if session is not None:
            with contextlib.suppress(TimeoutError, Error):
                async with asyncio.timeout(_CLOSE * session.context.settings.deadline_s):
                    await session.close()
                    del self.sessions[number]
                    return True
        return False

    def _deadline_s(self, message: wire.Message) -> float | None:
        """The pool's deadline for a call, if it is known."""
        session = self.sessions.get(message["session"])
        return message["args"].get("deadline_s") if session is None else session.context.settings.deadline_s

    def _patience_s(self, message: wire.Message) -> float | None:
        """When a call is given up; the pool does so a little later."""
        deadline_s = self._deadline_s(message)
        return None if deadline_s is None else _PATIENCE * deadline_s

    async def _call(self, number: int, call: str, args: dict[str, Any]) -> Any:
        if call == "open":
            self.sessions[number] = await BrowserSession.open(self.browser, Error, SessionSettings(**args))
            return {}
        if call not in CALLS or number not in self.sessions:
            raise Gone(f"a call must be one of {', '.join(CALLS)} on an open session; got {call} on {number}")
        if call == "close":
            return await self.sessions.pop(number).close()
        return await getattr(self.sessions[number], call)(**args)


def brief(error: Exception) -> str:
    """The first line of what an error says, with those that follow as long as it ends at a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ends = next((i for i, line in enumerate(lines, 1) if not line.endswith(":")), len(lines))
    return " ".join(lines[:ends])


def waits_in(task: asyncio.Task[Any]) -> str:
    """The functions that a task is in, outermost first, each with its line."""
    found, inner = [], task.get_coro()
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        found.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        inner = inner.cr_await  # type: ignore[union-attr]  # it has a frame, so it is a coroutine
    return " > ".join(found[1:]) or "nothing"


def _read(loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[wire.Message]) -> None:
    """The reading thread. At the end of the stream it ends all descendants, removes the temporary folder, and exits."""
    with contextlib.suppress(Exception):
        while (message := wire.read(sys.stdin.buffer)) is not None:
            loop.call_soon_threadsafe(inbox.put_nowait, message)
    processes.end_here()


async def main() -> None:
    """Launch, greet, and serve until the stream ends."""
    output, sandbox = os.fdopen(os.dup(1), "wb"), sys.argv[2] == "1"
    os.dup2(2, 1)  # all output goes to the log
    inbox: asyncio.Queue[wire.Message] = asyncio.Queue()
    threading.Thread(target=_read, args=(asyncio.get_running_loop(), inbox), daemon=True).start()
    async with async_playwright() as playwright:
        try:
            browser = await launch(playwright, sys.argv[1], sandbox=sandbox)
        except Error as error:
            wire.write(output, _failure(error, sandbox=sandbox))
            return
        browser.on("disconnected", lambda _: os._exit(1))
        wire.write(output, {"id": 0, "result": {"version": browser.version}})
        worker = BrowserWorker(browser, output)
        while True:
            worker.accept(await inbox.get())


if __name__ == "__main__":
    asyncio.run(main())
