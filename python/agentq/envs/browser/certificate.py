"""The certificate that a session's proxy presents to its own browser, so that the proxy can read https requests.

Only that browser uses the proxy, over loopback and without checks, so one key for all hosts suffices. The key is made
when it is first needed and never stored. Certificates of sites are checked as usual (`upstream_context`).
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
    """TLS towards the browser, with HTTP/1.1 only, so that each request can be read. Raises MissingExtra."""
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
    """TLS towards the site, with the machine's trust store and a check of the host's name."""
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
