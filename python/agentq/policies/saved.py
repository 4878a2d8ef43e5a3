"""Saving a checkpoint: what other programs need beside transformers' own files to read it as its base."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentq.errors import StoreError

PROCESSORS = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
_PARTS = (".safetensors", ".json", ".jinja", ".model")  # the files of a checkpoint, and of its tokenizer
_TEXTS = ("README.md", "LICENSE", ".gitattributes", "merges.txt", "vocab.txt")


@contextmanager
def without_bars() -> Iterator[None]:
    """Without transformers' progress bars, which would fill a notebook; those of a download stay."""
    from transformers.utils.logging import set_tqdm_hook

    before = set_tqdm_hook(lambda bar, args, options: bar(*args, **{**options, "disable": True}))
    try:
        yield
    finally:
        set_tqdm_hook(before)


def check_replaceable(path: Path) -> None:
    """Raises StoreError if saving a checkpoint at `path` would delete a file that is no part of one."""
    if not os.path.lexists(path) or path.is_symlink():
        return
    held = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else [path.name]
    whole = bool({"config.json", "adapter_config.json"} & set(held)) and any(path.glob("*.safetensors"))
    others = [name for name in held if name not in _TEXTS and not name.endswith(_PARTS)]
    if held and (others or not whole):
        raise StoreError(
            f"a checkpoint must be saved at a new path, or in place of another; got {path}, which has "
            f"{(others or held)[0]}, and would be deleted"
        )


def complete(directory: Path, config: Any, base: str | Path | None) -> None:
    """Add to a checkpoint that transformers has saved.

    Args:
        directory: the checkpoint.
        config: the config of its model.
        base: the checkpoint with which training began, by name or path. If its model also reads pictures or sound, the
            configs of its processors are copied.
    """
    if base is not None and config.get_text_config() is not config:
        _copy_processors(base, directory)
    _add_old_names(directory, type(config))


def _copy_processors(base: str | Path, directory: Path) -> None:
    from transformers.utils import cached_file

    quiet = {f"_raise_exceptions_for_{what}": False for what in ("gated_repo", "missing_entries", "connection_errors")}
    for name in PROCESSORS:
        found = cached_file(str(base), name, **quiet)
        if found is not None and not (directory / name).exists():
            shutil.copyfile(found, directory / name)


def _add_old_names(directory: Path, kind: Any) -> None:
    """Add to config.json `rope_theta`, `rope_scaling` and the like beside `rope_parameters`, which replaced them.

    Without them transformers 4 would take its default frequencies in silence. If transformers 5 would then read another
    config, of class `kind`, the file stays as it was.
    """
    file = directory / "config.json"
    before = file.read_text()
    written = json.loads(before)
    for part in (written, *(value for value in written.values() if isinstance(value, dict))):
        if isinstance(rope := part.get("rope_parameters"), dict):
            part.update({name: value for name, value in _old_names(rope).items() if name not in part})
    own = kind.from_pretrained(directory).to_dict()
    file.write_text(f"{json.dumps(written, indent=2)}\n")
    try:
        same = _known(kind.from_pretrained(directory).to_dict(), own)
    except Exception:  # configs raise anything
        same = False
    if not same:
        file.write_text(before)


def _known(found: Any, wanted: Any) -> bool:
    """Whether a value has all that is wanted; it may have more names."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return all(name in found and _known(found[name], value) for name, value in wanted.items())
    return bool(found == wanted)


def _old_names(rope: dict[str, Any]) -> dict[str, Any]:
    """The names of transformers 4 for `rope_parameters`, of one kind of layer or by the kind (Gemma 3)."""
    found: dict[str, Any] = {}
    if isinstance(sliding := rope.get("sliding_attention"), dict):
        found["rope_local_base_freq"] = sliding.get("rope_theta")
        rope = rope.get("full_attention") or {}
    scaling = {key: value for key, value in rope.items() if not isinstance(value, dict)}
    for name in ("rope_theta", "partial_rotary_factor"):
        found[name] = scaling.pop(name, None)
    if scaling.get("rope_type") == "longrope":  # exactly these names
        scaling = {"type": "longrope"} | {
            key: scaling[key] for key in ("short_factor", "long_factor") if key in scaling
        }
    found["rope_scaling"] = None if scaling.get("rope_type") == "default" and len(scaling) == 1 else scaling or None
    return {name: value for name, value in found.items() if value is not None}
