"""Publishes weights to a vLLM server, and checks whether the server still has them.

The server reads a checkpoint from a directory that both can see. Weights are marked by vLLM's weight version, an
adapter by its name. Neither mark survives a restart, so a server that restarted with its first weights is recognised.
Marks and names follow from the checkpoint. So what one process published, others find there, and publish nothing.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from agentq.policies.openai_client import OpenAIClient, Refused
from agentq.policies.patience import Unavailable
from agentq.policies.weights import stamp

OURS = "agentq-"  # prefix of the names that agentq gives to weights and adapters
LOADING = f"{OURS}loading"


class Published:
    """Weights on one server, which needs VLLM_SERVER_DEV_MODE=1, or VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 for adapters.

    All calls may raise `Unavailable` and `Refused`.
    """

    def __init__(self, server: OpenAIClient, root: str) -> None:
        """`root` is the checkpoint that the server began with."""
        self.server, self.base, self.root = server, server.model, root
        self._weights: Path | None = None  # None: the root's
        self._adapter: Path | None = None
        self._mark = self._name = ""  # mark of the weights, name of the adapter; empty if never published

    @property
    def marked(self) -> bool:
        """Whether there are weights that a restart would lose silently."""
        return bool(self._mark)

    async def on_cpu(self) -> bool:
        """Whether the server computes on a CPU."""
        return "device_config=cpu" in await self.server.call("GET", "//server_info")

    async def intact(self) -> bool:
        """Whether the server has what was published."""
        if self._mark and await self._weight_version() != self._mark:
            return False
        return not self._name or self._name in {card.id for card in await self.server.models()}

    async def restore(self) -> None:
        """Publish again what was lost in a restart or a failure."""
        if self._mark and await self._weight_version() != self._mark:
            await self._load(self._weights, self._mark)
        if self._adapter and self._name not in {card.id for card in await self.server.models()}:
            await self._load_adapter(self._adapter, self._name)

    async def put(self, checkpoint: Path) -> None:
        """Serve all weights of a checkpoint, without an adapter. On failure, restore the old weights."""
        mark = f"{OURS}{stamp(checkpoint)}"
        try:
            if await self._weight_version() != mark:
                await self._load(checkpoint, mark)
        except BaseException:
            self._mark = self._mark or f"{OURS}{uuid4().hex}"  # its weights are unknown now
            with suppress(Unavailable, Refused):
                await self.restore()
            raise
        self._weights, self._mark = checkpoint, mark
        await self._drop_adapter()
        self._adapter, self._name, self.server.model = None, "", self.base

    async def put_adapter(self, checkpoint: Path) -> None:
        """Serve the weights with an adapter. On failure, nothing changes."""
        name = f"{OURS}{stamp(checkpoint)}"  # of one adapter only: the prefix cache knows adapters by their names
        if name not in {card.id for card in await self.server.models()}:
            await self._load_adapter(checkpoint, name)
        if name != self._name:
            await self._drop_adapter()
        self._adapter, self._name, self.server.model = checkpoint, name, name

    async def _weight_version(self) -> str:
        return str(json.loads(await self.server.call("GET", "//weight_info"))["weight_version"])

    async def _load(self, checkpoint: Path | None, mark: str) -> None:
        """Load weights. Running requests of other clients are aborted, since their weights would change."""
        path = self.root if checkpoint is None else str(checkpoint.resolve())
        await self.server.call("POST", "//pause?mode=abort")
        try:
            await self.server.call("POST", "//update_weight_version", {"new_version": LOADING})
            reload = {"method": "reload_weights", "kwargs": {"weights_path": path}}
            await self.server.call("POST", "//collective_rpc", reload)
            if not json.loads(await self.server.call("POST", "//reset_prefix_cache"))["success"]:
                raise Unavailable("a prefix cache in use")
            await self.server.call("POST", "//update_weight_version", {"new_version": mark})
        finally:
            await self.server.call("POST", "//resume")

    async def _load_adapter(self, checkpoint: Path, name: str) -> None:
        asked = {"lora_name": name, "lora_path": str(checkpoint.resolve())}
        await self.server.call("POST", "/load_lora_adapter", asked)

    async def _drop_adapter(self) -> None:
        if self._name:
            with suppress(Unavailable, Refused):  # a restart has dropped it
                await self.server.call("POST", "/unload_lora_adapter", {"lora_name": self._name})
