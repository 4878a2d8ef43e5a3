"""Your own web site in Chromium with your own checker: python examples/own_site.py

    agentq env check examples/own_site.py:OwnSite
    agentq eval CHECKPOINT --env examples/own_site.py:OwnSite --search.num_trees_in_flight 2

Copy `OwnSite`. `Diner` stands for your application: it runs on this machine, has an address, can be reset before each
task, and lets the checker read its data. Needs `make browser`.
"""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import agentq
from agentq.envs import default_browser
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.website import Website
from agentq.types import BROWSER_COMMANDS, Command, EnvAction, Split, Task


class OwnSite:
    name, max_steps = "diner", 8
    commands = BROWSER_COMMANDS  # every command of a browser: the model is also told about WAIT, BACK, TAB ..
    blocking = True  # calls wait for the browser, so each session gets its own thread

    def __init__(self):
        self.site = Diner()  # one per session, so that no session sees what another one has done
        self.browser = BrowserEnv(Website(self.name, self.site.url, max_steps=self.max_steps), default_browser())

    def reset(self, seed):
        self.wanted = f"Guest {seed}"
        self.site.booked.clear()  # every task must begin with the same data
        instruction = f"Book a table for {self.wanted}"
        seen = self.browser.reset(Task(self.name, seed, Split.TRAIN, instruction))  # a new context, without cookies
        return {"instruction": instruction, "text": seen.text, "url": self.path(seen)}

    def step(self, command, element, text):
        done = self.browser.step(EnvAction(Command(command), element, text))
        won = done.terminated and self.success(done.observation)
        return {
            "text": done.observation.text,
            "url": self.path(done.observation),
            "reward": float(won),
            "success": won,
            "terminated": done.terminated,
            "truncated": done.truncated,
            "error_kind": done.error_kind,  # the page already shows its message
        }

    def success(self, page):
        return self.site.booked == [self.wanted]  # or by the page: "Booked" in page.text

    def path(self, page):
        return page.url.removeprefix(self.site.url)  # without the port, which differs between sessions

    def close(self):
        self.browser.close()
        self.site.close()


class Diner:
    def __init__(self):
        booked = self.booked = []

        class Pages(BaseHTTPRequestHandler):
            def do_GET(self):
                rows = "".join(f"<li>Booked: {name}</li>" for name in booked)
                form = "<form method=post><label>Name <input name=name></label> <button>Book</button></form>"
                page = f"<!doctype html><title>Diner</title><h1>Diner</h1>{form}<ul>{rows}</ul>".encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def do_POST(self):
                form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                booked.append(form.get("name", ""))
                self.send_response(303)
                self.send_header("Location", "/")
                self.end_headers()

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def model(history, k):  # in place of a language model: up to k answers to a page
    page, name = history.observation.text, history.instruction.removeprefix("Book a table for ")
    if f"Booked: {name}" in page:
        return ["STOP"]
    field, button = (re.search(rf"{what} \[(\d+)\]", page)[1] for what in ("textbox Name", "button Book"))
    return [f"CLICK [{button}]", f"TYPE [{field}] {name}", "STOP"][:k]


if __name__ == "__main__":
    print(agentq.search(OwnSite, task=0, policy=model, num_iterations=6).show())
