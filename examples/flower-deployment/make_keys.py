"""Make what a federation with TLS and node authentication needs: python make_keys.py FOLDER 6.

FOLDER gets ca.crt, server.key and server.pem (for 127.0.0.1 and localhost) and for each SuperNode a
key pair node-0, node-0.pub, … as ssh-keygen would make it. For trying things out: in earnest the
certificate comes from your certificate authority and each node makes its own key.
"""

import ipaddress
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

MAY_SIGN_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def write_secret(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    """Write a private key that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def make_certificates(folder: Path) -> None:
    """An authority (ca.crt), and the SuperLink's certificate (server.pem, server.key) by it."""
    now = datetime.now(UTC)
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedmuster example authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]

    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(issued_by, False)
        )

    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    root = certificate(issuer, authority).add_extension(is_authority, True)
    root = root.add_extension(MAY_SIGN_CERTIFICATES, True)
    leaf = certificate(subject, server).add_extension(x509.SubjectAlternativeName(names), False)
    for name, builder in (("ca.crt", root), ("server.pem", leaf)):
        signed = builder.sign(authority, hashes.SHA256())
        (folder / name).write_bytes(signed.public_bytes(Encoding.PEM))
    write_secret(folder / "server.key", server, PrivateFormat.TraditionalOpenSSL)


def make_node_key(path: Path) -> None:
    """One SuperNode's key pair: the private key at path, the public one beside it."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(path, key, PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public)


if __name__ == "__main__":
    target, num_nodes = Path(sys.argv[1]), int(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    make_certificates(target)
    for node in range(num_nodes):
        make_node_key(target / f"node-{node}")
