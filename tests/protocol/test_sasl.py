"""SASL mechanisms, bytes in and bytes out: they follow the RFCs, agree with each other, and refuse
invalid messages.
"""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.errors import AuthenticationError
from aioprod.protocol.sasl.mechanism import ClientMechanism, ServerMechanism
from aioprod.protocol.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from aioprod.protocol.sasl.plain import PlainClient, PlainServer
from aioprod.protocol.sasl.scram import MAX_ITERATIONS, ScramClient, ScramCredential, ScramServer

SALT = b"0123456789abcdef"
TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)
SCRAM = st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"])


def talk(client: ClientMechanism, server: ServerMechanism) -> None:
    """Exchange messages until the client is authenticated."""
    message: bytes | None = client.first_message()
    for _ in range(5):
        assert message is not None
        message = client.answer(server.respond(message))
        if message is None:
            return
    pytest.fail("no end in five rounds")


def scram_server(mechanism: str, user: str, password: str, iterations: int = 4096) -> ScramServer:
    credential = ScramCredential.of(mechanism, password, SALT, iterations)
    return ScramServer(mechanism, lambda name: credential if name == user else None, "server")


class TestScram:
    def test_the_example_of_rfc_7677(self) -> None:
        client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
        assert client.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        proof = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        assert client.answer(challenge) == proof
        assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None

    def test_our_server_says_what_rfc_7677_says(self) -> None:
        credential = ScramCredential.of(
            "SCRAM-SHA-256", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
        )
        server = ScramServer(
            "SCRAM-SHA-256", {"user": credential}.get, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
        )
        first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        assert server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == first
        proof = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        assert server.respond(proof) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        assert server.user == "user"

    @given(mechanism=SCRAM, user=TEXTS, password=TEXTS)
    @settings(max_examples=30)
    def test_both_sides_agree_whatever_the_name_and_password(
        self, mechanism: str, user: str, password: str
    ) -> None:
        server = scram_server(mechanism, user, password)
        talk(ScramClient(mechanism, user, password, "client"), server)
        assert server.user == user

    @given(mechanism=SCRAM, password=TEXTS, other=TEXTS)
    @settings(max_examples=20)
    def test_another_password_or_user_is_refused(
        self, mechanism: str, password: str, other: str
    ) -> None:
        server = scram_server(mechanism, "user", password)
        name, tried = ("user", other) if other != password else ("mallory", password)
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            talk(ScramClient(mechanism, name, tried, "client"), server)
        assert server.user is None

    def test_a_delegation_token_says_so_and_our_server_has_none(self) -> None:
        client = ScramClient("SCRAM-SHA-256", "id", "hmac", "nonce", is_token=True)
        assert client.first_message() == b"n,,n=id,r=nonce,tokenauth=true"
        server = scram_server("SCRAM-SHA-256", "id", "hmac")
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            talk(client, server)
        assert server.user is None

    @pytest.mark.parametrize(
        ("challenge", "fault"),
        [
            (b"", "is not valid"),
            (b"r=client+,s=AA==", "is not valid"),
            (b"e=other-error", r"is not valid \(other-error\)"),
            (b"\xff\xfe", "is not valid"),
            (b"r=other,s=AA==,i=4096", "nonce"),
            (b"r=client,s=AA==,i=4096", "nonce"),  # the broker must extend it
            (b"r=client+,s=A,i=4096", "base64"),
            (b"r=client+,s=AA==,i=4095", "4095 iterations: must be 4096 to"),
            (b"r=client+,s=AA==,i=%d" % (MAX_ITERATIONS + 1), "iterations"),
            (b"r=client+,s=AA==,i=99999999999", "is not valid"),
        ],
    )
    def test_a_first_message_of_the_broker_that_can_not_be(
        self, challenge: bytes, fault: str
    ) -> None:
        client = ScramClient("SCRAM-SHA-256", "user", "pencil", "client")
        client.first_message()
        with pytest.raises(AuthenticationError, match=fault):
            client.answer(challenge)

    @pytest.mark.parametrize(
        ("last", "fault"),
        [
            (b"v=" + base64.b64encode(b"x" * 32), "does not know the password"),
            (b"v=", "does not know the password"),
            (b"v=!", "base64"),
            (b"", "is not valid"),
            (b"e=invalid-proof", r"\(invalid-proof\)"),
        ],
    )
    def test_a_broker_that_can_not_prove_that_it_knows_the_password(
        self, last: bytes, fault: str
    ) -> None:
        client = ScramClient("SCRAM-SHA-256", "user", "pencil", "client")
        client.answer(
            scram_server("SCRAM-SHA-256", "user", "other").respond(client.first_message())
        )
        with pytest.raises(AuthenticationError, match=fault):
            client.answer(last)

    @pytest.mark.parametrize(
        "message", [b"", b"n,,n=user", b"y,,n=user,r=c", b"p=tls-unique,,n=user,r=c", b"\xff"]
    )
    def test_a_client_that_makes_no_sense_is_refused(self, message: bytes) -> None:
        with pytest.raises(AuthenticationError, match="first message"):
            scram_server("SCRAM-SHA-256", "user", "pencil").respond(message)

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"c=biws,r=cserver",
            b"c=biws,r=other,p=AA==",
            b"c=eSws,r=cserver,p=AA==",
            b"c=biws,r=cserver,p=A",
        ],
    )
    def test_a_last_message_that_makes_no_sense_is_refused(self, message: bytes) -> None:
        server = scram_server("SCRAM-SHA-256", "user", "pencil")
        server.respond(b"n,,n=user,r=c")
        with pytest.raises(AuthenticationError, match="final message"):
            server.respond(message)
        assert server.user is None

    def test_a_proof_of_the_wrong_length_is_refused(self) -> None:
        server = scram_server("SCRAM-SHA-256", "user", "pencil")
        server.respond(b"n,,n=user,r=c")
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            server.respond(b"c=biws,r=cserver,p=AAAA")


class TestPlain:
    @given(user=TEXTS, password=TEXTS)
    def test_both_sides_agree(self, user: str, password: str) -> None:
        server = PlainServer({user: password})
        talk(PlainClient(user, password), server)
        assert server.user == user

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"\0user\0wrong",
            b"\0other\0pencil",
            b"\0\0",
            b"\0user\0pencil\0",
            b"other\0user\0pencil",
            b"\xff\0\xff\0x",
        ],
    )
    def test_anything_else_is_refused(self, message: bytes) -> None:
        server = PlainServer({"user": "pencil"})
        with pytest.raises(AuthenticationError):
            server.respond(message)
        assert server.user is None


class TestOAuthBearer:
    def test_the_message_of_the_rfc_with_extensions(self) -> None:
        client = OAuthBearerClient("abc.def.ghi", {"traceId": "42", "logicalCluster": "lkc 1"})
        assert (
            client.first_message()
            == b"n,,\x01auth=Bearer abc.def.ghi\x01traceId=42\x01logicalCluster=lkc 1\x01\x01"
        )

    def test_the_broker_sees_token_and_extensions(self) -> None:
        seen: list[tuple[str, dict[str, str]]] = []

        def validate(token: str, extensions: object) -> str:
            assert isinstance(extensions, dict)
            seen.append((token, extensions))
            return "alice"

        server = OAuthBearerServer(validate)
        talk(OAuthBearerClient("token", {"a": "b=c"}), server)
        assert server.user == "alice"
        assert seen == [("token", {"a": "b=c"})]

    def test_a_refusal_comes_in_two_steps(self) -> None:
        server = OAuthBearerServer(lambda token, extensions: None)
        client = OAuthBearerClient("token", {})
        challenge = server.respond(client.first_message())
        assert challenge == b'{"status":"invalid_token"}'
        assert client.answer(challenge) == b"\x01"
        with pytest.raises(AuthenticationError, match="invalid_token"):
            server.respond(b"\x01")
        # The client does not trust a broker that accepts after a refusal.
        with pytest.raises(AuthenticationError, match="invalid_token"):
            client.answer(b"")

    @pytest.mark.parametrize(
        ("token", "extensions"),
        [
            ("", {}),
            ("a\x01b", {}),
            ("a b", {}),
            ("ä", {}),
            ("t", {"auth": "x"}),
            ("t", {"a1": "x"}),
            ("t", {"": "x"}),
            ("t", {"a": ""}),
            ("t", {"a": "\x01"}),
        ],
    )
    def test_what_the_message_can_not_carry(self, token: str, extensions: dict[str, str]) -> None:
        with pytest.raises(AuthenticationError) as raised:
            OAuthBearerClient(token, extensions)
        assert token == "" or token not in str(raised.value).split()

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"n,,\x01auth=Bearer t\x01",
            b"n,,\x01a=b\x01\x01",
            b"n,,\x01auth=Basic t\x01\x01",
            b"x\x01auth=Bearer t\x01\x01",
        ],
    )
    def test_a_client_that_makes_no_sense_is_refused(self, message: bytes) -> None:
        with pytest.raises(AuthenticationError, match="Invalid OAUTHBEARER"):
            OAuthBearerServer(lambda token, extensions: "anybody").respond(message)


def test_secrets_show_in_no_repr() -> None:
    mechanisms = [
        PlainClient("user", "hush"),
        ScramClient("SCRAM-SHA-256", "user", "hush", "nonce"),
        OAuthBearerClient("hush", {"a": "hush"}),
        PlainServer({"user": "hush"}),
        scram_server("SCRAM-SHA-256", "user", "hush"),
    ]
    assert not any("hush" in repr(mechanism) for mechanism in mechanisms)
    credential = ScramCredential.of("SCRAM-SHA-256", "hush", SALT)
    assert repr(credential.stored_key) not in repr(credential)
