import agentq


class Count:  # your environment: reset(seed) begins a task, step(...) takes one action
    def reset(self, seed):
        self.goal, self.count = 2 + seed % 3, 0
        return {"instruction": f"Count to {self.goal} and stop", "text": "count 0\nbutton Up [1]"}

    def step(self, command, element, text):
        self.count += command == "CLICK"
        won, page = command == "STOP" and self.count == self.goal, f"count {self.count}\nbutton Up [1]"
        return {"text": page, "reward": float(won), "success": won, "terminated": command == "STOP"}


def model(history, k):  # your model: up to k answers to a history
    return ["STOP", "CLICK [1]", "SCROLL DOWN"][:k]


print(agentq.search(Count, task=0, policy=model, num_iterations=8).show())
