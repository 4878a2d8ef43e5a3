"""An environment of your own, for any Python: a class with `reset` and `step`, and a function that makes one.

    agentq env serve examples/own_env.py:make                    # --python for the one that has what it imports
    agentq eval CHECKPOINT --env count@127.0.0.1:7007

Here the agent counts up to a number. docs/protocol.md names everything that `reset` and `step` may return.
"""


class Count:
    name, max_steps = "count", 12

    def reset(self, seed):
        self.goal, self.count = 2 + seed % 3, 0
        return {"instruction": f"Count to {self.goal} and stop", "text": self.page()}

    def step(self, command, element, text):
        if command == "CLICK" and element != 1:
            return {"text": self.page(), "error_kind": "no_such_element", "error_message": f"no element [{element}]"}
        self.count += command == "CLICK"
        won = command == "STOP" and self.count == self.goal
        return {"text": self.page(), "reward": float(won), "success": won, "terminated": command == "STOP"}

    def page(self):
        return f"heading {self.count}\nbutton Up [1]"


def make():
    return Count()
