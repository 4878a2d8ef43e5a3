"""An environment of your own: a class with `reset` and `step`, and a function that makes one.

    agentq env check examples/own_env.py:make                    # test what search relies on
    agentq eval CHECKPOINT --env examples/own_env.py:make        # in agentq's own process
    agentq env serve examples/own_env.py:make                    # with --python PATH it runs in another Python
    agentq eval CHECKPOINT --env count@127.0.0.1:7007

Here the agent counts up to a number. Only `reset` and `step` are needed. Without `snapshot` and `restore`, search goes
back to a page by `reset` and the same steps; without `expert` there are no demonstrations. docs/protocol.md lists what
`reset` and `step` may return and what else the class may have.
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

    def snapshot(self):
        return self.goal, self.count

    def restore(self, token):
        self.goal, self.count = token

    def expert(self):
        return {"command": "STOP"} if self.count == self.goal else {"command": "CLICK", "element": 1}

    def page(self):
        return f"heading {self.count}\nbutton Up [1]"


def make():
    return Count()
