"""Certificates for a cluster that speaks TLS alone, and Dask's configuration with them."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def configured(folder):
    """Dask's configuration, by its keys, with certificates that are made in a folder."""
    authority, key = certificate(folder, "authority")
    own, _ = certificate(folder, "own", key)
    tls = "distributed.comm.tls"
    found = {f"{tls}.ca-file": str(authority), "distributed.comm.require-encryption": True}
    for role in ("scheduler", "worker", "client"):
        found |= {f"{tls}.{role}.cert": str(own), f"{tls}.{role}.key": str(own)}
    return found


def certificate(folder, name, issuer=None):
    """A key with its certificate in one file: of an authority, or issued by one."""
    key = ec.generate_private_key(ec.SECP256R1())
    today = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    own, authority = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, "authority")
    )
    built = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(authority)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(issuer or key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{name}.pem"
    path.write_bytes(built.public_bytes(serialization.Encoding.PEM) + private)
    path.chmod(0o600)
    return path, key


def variables(configured):
    """The same as variables of the environment."""
    return {
        "DASK_" + key.replace(".", "__").replace("-", "_").upper(): str(value)
        for key, value in configured.items()
    }
