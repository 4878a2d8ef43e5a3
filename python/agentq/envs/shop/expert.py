"""The scripted expert of `shop`. It knows the next step from any page and has no state between steps."""

from __future__ import annotations

from agentq.envs.shop.tasks import Goal, goal, order_reward
from agentq.envs.shop.world import PAGE_SIZE, by_title, search
from agentq.envs.tab import View
from agentq.envs.web_env import Advice, SiteExpert, click, fill, find
from agentq.types import Command, EnvAction, Status, Task

PLAN = "search the product , compare titles and prices , choose options , buy it"


def advise(task: Task, view: View) -> Advice:
    """The next step for `task` from what the tab shows."""
    want = goal(task.seed)
    heading = str(view.page.lines[0]).removeprefix("heading ") if view.page.lines else ""
    if heading == "Order complete" or find(view, "link", "Your order"):
        return Advice(EnvAction(Command.STOP), "order complete", "stop", Status.DONE)
    if find(view, "button", "Find"):
        return _search(want, view)
    item = by_title().get(heading)
    if item is not None and order_reward(want, item, want.color, want.size) == 1.0 and want.color in item.colors:
        if find(view, "button", "Buy now"):
            return _choose(want, view)
        return click(view, "link", "Back", f"go back to {item.title}", "go back")
    if find(view, "link", "Back"):
        return click(view, "link", "Back", f"go back to find {want.query}", "go back")
    return click(view, "link", "Home", f"go back to find {want.query}", "go home")


def _search(want: Goal, view: View) -> Advice:
    """On the home page or on results: the right query, then the page that holds the product, then its link."""
    typed = fill(view, Command.TYPE, "textbox", "Search", want.query)
    if typed is not None:
        return typed._replace(explanation="search product")
    title = want.target.title
    if find(view, "link", title):
        return click(view, "link", title, f"open {title} for {want.target.price} dollars", "open product")
    words = str(view.page.lines[0]).split()
    if words[:3] == ["heading", "Results", "page"] and f"q={want.query.replace(' ', '+')}&" in f"{view.url[8:]}&":
        there = search(want.query).index(want.target) // PAGE_SIZE + 1
        turn = "Next" if int(words[3]) < there else "Previous"
        return click(view, "link", turn, f"none here under {want.limit} dollars", f"{turn.lower()} page")
    return click(view, "button", "Find", f"find {want.query}", "run search")


def _choose(want: Goal, view: View) -> Advice:
    for label, value in (("Color", want.color), ("Size", want.size)):
        step = fill(view, Command.SELECT, "combobox", label, value)
        if step is not None:
            return step
    return click(view, "button", "Buy now", f"buy in {want.color}", "buy")


EXPERT = SiteExpert(PLAN, advise)
