"""A certificate authority for one test run."""

from __future__ import annotations

import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates; `path` is the file to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        # Today at midnight: a certificate is never made in its own future.
        today = datetime.datetime.now(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self._today = today
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = (
            self._start(self._name, self._key, today - DAY, today + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / "authority.pem"
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def client(self) -> ssl.SSLContext:
        """What trusts this authority and nobody else."""
        return ssl.create_default_context(cafile=str(self.path))

    def server(self, *names: str, expired: bool = False, self_signed: bool = False) -> ssl.SSLContext:
        """A server's side, with a certificate for these names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test target")])
        ends = self._today - DAY if expired else self._today + 30 * DAY
        issuer = subject if self_signed else self._name
        made = (
            self._start(subject, key, self._today - 3 * DAY, ends, issuer)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .sign(key if self_signed else self._key, hashes.SHA256())
        )
        file = self._folder / f"{'-'.join(names).replace('*', 'any')}-{expired}-{self_signed}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _start(self, subject, key, starts, ends, issuer=None) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(starts)
            .not_valid_after(ends)
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
