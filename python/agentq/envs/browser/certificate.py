"""The certificate with which a session's proxy answers its own browser, so that it can read what is sent by https.

Only that browser talks to the proxy, over loopback, and it is told not to check: one key for all hosts does, made when
it is first needed and never kept. What the proxy connects to is checked as usual (`upstream_context`).
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from functools import cache
from pathlib import Path

from agentq.errors import MissingExtra

_DAYS = 7


@cache
def browser_context() -> ssl.SSLContext:
    """For the side of the browser. HTTP/1.1 only, so that each request is read as it is. Raises MissingExtra."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder) / "both.pem"
        both.touch(mode=0o600)
        both.write_bytes(_make())
        context.load_cert_chain(both)
    context.set_alpn_protocols(["http/1.1"])
    return context


@cache
def upstream_context() -> ssl.SSLContext:
    """For the side of the site: the machine's trust store, the host's name checked."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _make() -> bytes:
    """A key and a certificate for it, PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise MissingExtra("agentq run on https needs cryptography: pip install 'agentq-search[browser]'") from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agentq")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=_DAYS))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    signed: bytes = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return bytes(private) + signed
