"""``rediss://``: the same store through TLS, and only with a server whose certificate is good."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from serving_loop import served
from valkey_server import Valkey

from agentcache.errors import SettingsError
from agentcache.store.base import Record, StoreItem, StoreUnavailableError
from agentcache.store.opening import open_store, store_at

T = 10.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1 that has signed itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agentcache test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "certificate.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture
def port(valkey: Valkey, certificate: tuple[Path, Path]) -> Iterator[int]:
    """Where TLS ends; what comes out of it goes to the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", valkey.port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(2**16):
                    target.write(data)
                    await target.drain()
            except OSError:
                pass
            finally:
                target.transport.abort()

        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    with served(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)) as (port, _):
        yield port


def test_a_store_is_used_through_tls(valkey: Valkey, port: int, certificate: tuple[Path, Path]) -> None:
    store = open_store(f"valkeys://127.0.0.1:{port}/0?ssl_ca_certs={certificate[0]}", T)
    value = bytes(range(256)) * 4000
    items = [StoreItem(b"tls/%d" % each, value) for each in range(8)]
    store.batch_set(items, T)
    for _ in range(2):
        assert store.batch_get([item.key for item in items], T) == [value] * 8
    assert store.save(b"tls/record", b"v", 0, 60, T)
    assert store.load(b"tls/record", T) == Record(1, b"v")
    with valkey.hung(), pytest.raises(StoreUnavailableError, match=r"did not answer within 0.2 s"):
        store.batch_get([b"tls/1"], 0.2)
    assert store.batch_get([b"tls/1"], T) == [value]
    store.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(port: int) -> None:
    with pytest.raises(SettingsError, match=r"cannot be reached: .*certificate verify failed"):
        open_store(f"rediss://127.0.0.1:{port}/0", T)
    open_store(f"rediss://127.0.0.1:{port}/0?ssl_cert_reqs=none", T).close()


def test_a_file_of_certificates_that_is_not_there_is_said(port: int) -> None:
    with pytest.raises(SettingsError, match=r"cannot be reached: .*No such file"):
        open_store(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs=/nowhere.pem", T)


def test_a_server_that_never_shakes_hands_is_given_up(valkey: Valkey) -> None:
    store = store_at(f"rediss://127.0.0.1:{valkey.port}/0")
    with pytest.raises(
        StoreUnavailableError, match=r"did not answer in TLS within 0.3 s; expected redis:// or valkey://"
    ):
        store.ping(0.3)


def test_a_server_that_answers_in_clear_is_told_from_one_with_a_bad_certificate() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(b"-ERR unknown command\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(StoreUnavailableError, match=r"did not answer in TLS .* for a port without TLS"):
            store_at(f"rediss://127.0.0.1:{listening.getsockname()[1]}/0").ping(T)
        thread.join()
