"""A class of the contract without further methods, from which tests make worlds of their own."""

from __future__ import annotations

from typing import Any


class Counting:
    """Count to a number and stop."""

    name, max_steps = "count", 6

    def reset(self, seed: int) -> dict[str, Any]:
        self.goal, self.count = 2 + seed % 3, 0
        return {"instruction": f"Count to {self.goal} and stop", "text": self.page()}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        self.count += command == "CLICK"
        won = command == "STOP" and self.count == self.goal
        return {"text": self.page(), "reward": float(won), "success": won, "terminated": command == "STOP"}

    def page(self) -> str:
        return f"count {self.count}\nbutton Up [1]"
