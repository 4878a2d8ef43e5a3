"""A request that is about to leave the browser, read from the wire, and its description for the person who decides."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl

_INVISIBLE = re.compile(  # invisible letters, marks and symbols beyond those that isprintable() knows
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request that would be sent. Two are equal if method and address are, since a body may differ at each load.

    `fields`: those of the body, hidden ones included; a body that is no form is one field without a name. `size`: in
    bytes. `digest`: the body's SHA-256.
    """

    method: str
    url: str
    fields: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    size: int = field(default=0, compare=False)
    digest: str = field(default="", compare=False)

    @classmethod
    def read(cls, told: dict[str, Any]) -> OutgoingRequest:
        """The request in a worker's message."""
        fields = tuple((name, value) for name, value in told["fields"])
        return cls(told["method"], told["url"], fields, told["size"], told["digest"])

    def lines(self) -> list[str]:
        """The whole request, the body first, without control or invisible characters."""
        lines = [
            f"  {visible(name)} = {visible(value)}" if name else f"  {visible(value)}" for name, value in self.fields
        ]
        sent = f" , {self.size} bytes , SHA-256 {self.digest}" if self.size else " , without a body"
        return [*lines, f"{self}{sent}"]

    def __str__(self) -> str:
        return visible(f"{self.method} {self.url}")


def tell(method: str, url: str, content_type: str, body: bytes) -> dict[str, Any]:
    """A request as part of a message; `OutgoingRequest.read` is the inverse."""
    digest = hashlib.sha256(body).hexdigest()
    return {"method": method, "url": url, "fields": _fields(content_type, body), "size": len(body), "digest": digest}


def visible(text: str) -> str:
    r"""`text` on one line, with escapes such as `\u202e` for invisible characters: controls, bidi marks, zero width."""
    return "".join(
        character
        if character.isprintable() and character != "\\" and not _INVISIBLE.match(character)
        else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return {"\\": "\\\\", "\n": "\\n", "\t": "\\t"}.get(character) or (
        f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
    )


def _fields(content_type: str, body: bytes) -> list[tuple[str, str]]:
    kind = content_type.partition(";")[0].strip().lower()
    if not body:
        return []
    if kind == "application/x-www-form-urlencoded" and (form := _form(body)):
        return form
    if kind == "multipart/form-data" and (parts := _parts(content_type, body)):
        return parts
    return [("", _text(body))]


def _form(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form; none if any part of the body does not fit."""
    text = _text(body)
    pairs = parse_qsl(text, keep_blank_values=True)
    return pairs if len(pairs) == len(text.split("&")) and all(name for name, _ in pairs) else []


def _parts(content_type: str, body: bytes) -> list[tuple[str, str]]:
    """The fields and files of a multipart form; none if any part of the body does not fit."""
    whole = message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    if not whole.is_multipart() or whole.preamble or (whole.epilogue or "").strip() or whole.defects:
        return []
    fields = []
    for part in whole.get_payload():
        if not isinstance(part, Message) or part.is_multipart() or part.defects:
            return []
        name, file = part.get_param("name", "", "content-disposition"), part.get_filename()
        if not isinstance(name, str) or "content-transfer-encoding" in part:  # servers read it differently
            return []
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        about = f"file {file} , {part.get_content_type()} : " if file is not None else ""
        fields.append((name or "(no name)", about + _text(content)))
    return fields


def _text(body: bytes) -> str:
    """`body` as text; bytes that are not UTF-8 become escapes."""
    return body.decode("utf-8", "backslashreplace")
