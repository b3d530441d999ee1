"""Which certificates are trusted: the machine's own, or those that SSL_CERT_FILE or SSL_CERT_DIR name."""

from __future__ import annotations

import os
import re
import ssl
import sys
from functools import lru_cache

import truststore

# Where Linux distributions keep what they trust, for a Python that was built elsewhere.
_BUNDLES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
_HASHED = re.compile(r"[0-9a-fA-F]{8}\.\d")


@lru_cache(maxsize=2)
def tls_context(verify: bool) -> ssl.SSLContext:
    """TLS that checks the names and certificates of servers, if asked to. Made once: it takes long."""
    if not verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    paths = ssl.get_default_verify_paths()
    # The environment's choice is found in here, and is all that is trusted then.
    if paths.cafile not in {None, paths.openssl_cafile}:
        return ssl.create_default_context(cafile=paths.cafile)
    if paths.capath not in {None, paths.openssl_capath}:
        return ssl.create_default_context(capath=paths.capath)
    if sys.platform in {"win32", "darwin"}:
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Not by `truststore` here, which loads them again for each handshake, and OpenSSL < 3.4 keeps all copies.
    cafile, capath = paths.cafile, paths.capath
    if capath and not cafile and not any(_HASHED.fullmatch(name) for name in os.listdir(capath)):
        capath = None
    if not cafile and not capath:
        cafile = next(filter(os.path.isfile, _BUNDLES), None)
    if cafile or capath:
        context.load_verify_locations(cafile, capath)
    return context
