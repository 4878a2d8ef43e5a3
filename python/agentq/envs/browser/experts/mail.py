"""Experts of inboxes: a message to star, delete, answer or forward."""

from __future__ import annotations

import re

from agentq.envs.browser.experts.look import Look, PageExpert
from agentq.envs.browser.experts.thoughts import walk
from agentq.envs.web_env import Advice


def _mail(look: Look) -> Advice:
    """An inbox with star and bin, an open message, a form for a text."""
    by, verb, rest = _mail_words(look.said)
    if look.find("send-reply") or look.find("send-forward"):
        text = rest.strip('"')
        field = look.all("textbox")[0]
        if look.find("send-reply"):
            return look.fill({field: text}, "send-reply")
        return look.fill({field: text}, "send-forward", labelled=True)
    message = look.find("Reply")
    if message:
        return look.click(look.find({"reply": "Reply", "forward": "Forward"}[verb]))
    thread = next((e for e in look.all() if look.name(e).startswith(f"{by} ")), 0)
    if verb in ("reply", "forward"):
        return look.thinking(f"by {by} [{thread}]", look.click(thread, "open it"))
    icon = look.after(f"{by} ", {"delete": "trash", "star": "star"}[verb])
    return look.thinking(walk(by, look.group(f"{by} "), icon), look.click(icon))


_VERBS = ("Find", "Locate", "Look", "Forward", "Send", "Go", "Please", "The", "Give", "I", "Navigate", "Search", "It")


def _mail_words(said: str) -> tuple[str, str, str]:
    if found := re.search(
        r"\b(?:to|^Send|^Give|^Forward) (?!you)([A-Z][\w-]+)|^([A-Z][\w-]+) (?:wants the|is waiting)", said
    ):
        to = found[1] or found[2]
        others = [name for name in re.findall(r"\b[A-Z][\w-]+", said) if name not in (to, *_VERBS)]
        return others[-1], "forward", to
    by = re.search(r"email by ([\w-]+)", said)
    assert by is not None
    if found := re.search(r"forward that email to ([\w-]+)", said):
        return by[1], "forward", found[1]
    if found := re.search(r'reply to them with the text ("[^"]*")', said):
        return by[1], "reply", found[1]
    return by[1], "delete" if "delete" in said else "star", ""


EXPERTS: dict[str, PageExpert] = {
    **dict.fromkeys(
        ("email-inbox", "email-inbox-delete", "email-inbox-forward", "email-inbox-important", "email-inbox-forward-nl"),
        _mail,
    ),
    **dict.fromkeys(("email-inbox-noscroll", "email-inbox-reply", "email-inbox-star-reply"), _mail),
}
