"""The fence between text and control tokens: what a page or a model wrote must reach a model as plain text."""

from __future__ import annotations

import re
from typing import Any

from agentq.agent.prompts import Messages


class Fence:
    """Breaks the special tokens of one tokenizer wherever a text spells them; every other text stays as it is.

    A space is put behind the first character: `<|im_end|>` becomes `< |im_end|>`. Marks of a chat template that are
    ordinary text to the tokenizer are not known here.
    """

    def __init__(self, tokenizer: Any) -> None:
        added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._tokens = sorted(token for token in added | set(tokenizer.all_special_tokens) if len(token) > 1)
        self._starts = re.compile(f"(?={'|'.join(map(re.escape, self._tokens))}).", re.DOTALL)

    def text(self, text: str) -> str:
        """`text`, in which the tokenizer finds no special token."""
        spelled = any(token in text for token in self._tokens)
        return self._starts.sub(lambda start: start[0] + " ", text) if spelled else text

    def messages(self, messages: Messages) -> Messages:
        """The same for the content of each message."""
        return [message | {"content": self.text(message["content"])} for message in messages]
