"""Records: what is read from one is what was written, and what somebody damaged is never believed."""

from __future__ import annotations

import random
import struct
import zlib
from array import array
from dataclasses import replace

import pytest

from agentcache.chat.tool_text import Announcement
from agentcache.sessions.added_tools import AddedTools
from agentcache.sessions.records import Clock, DamagedRecordError, RecordDivergedError, Records, inflated
from agentcache.sessions.session import Head, Home, Session
from agentcache.sessions.session_json import MadeWith
from agentcache.sessions.transcript import EndToken, KnownReply, Mark, Transcript
from agentcache.sessions.turn import Answered, Figures, Turn
from agentcache.sessions.vault import Kept, RecordName

MADE = MadeWith("model/1", "template")
HERE, THERE = Clock(1000), Clock(7)
HOME = Home(b"owner", b"root", "salt")
NAME = RecordName(HOME.owner, "sess_1")


def a_session(turns: int = 3, tokens: int = 400) -> Session:
    rng = random.Random(turns)
    ids = array("I", rng.choices(range(500), k=tokens))
    text = "Grüße an den Cache 👋 " * turns
    end = EndToken(511, "<|im_end|>")
    known = KnownReply(1, Mark(3, 4), Mark(9, 12), end, 5, "digest", ("call_1",))
    transcript = Transcript(ids, text, end, (known,))
    added = AddedTools(({"type": "function", "function": {"name": "patch"}},), Announcement("# More tools"))
    figures = Figures(30, 16, 14, 8, {"code": "cold", "at_token": 0})
    turn = Turn(
        ({"role": "user", "content": "Hi \x85"}, {"role": "assistant", "content": None}), transcript.mark, end,
        Transcript(array("I", [1, 2])), figures, "me.1", added, Answered("abc", 12.5, "stop", "###"),
    )  # fmt: skip
    session = Session(
        "sess_1", HOME, Head(False, ({"role": "system", "content": "Be brief."},), [{"type": "function"}], transcript),
        60.0, 5.0, transcript, {"task": 7}, "sess_0", [replace(turn, turn_id=f"me.{i}") for i in range(turns)], 77.5,
    )  # fmt: skip
    session.note("created", 5.0)
    session.note("turn", 6.0, prompt_tokens=30)
    return session


def kept(session: Session, version: int = 4) -> Kept:
    return Kept(version, Records(MADE, HERE).of_session(session, version))


def read(record: Kept, name: RecordName = NAME, made: MadeWith = MADE, clock: Clock = THERE) -> Session | None:
    return Records(made, clock).session(name, record, lambda salt: Home(b"owner", b"root", salt))


@pytest.mark.parametrize("turns,tokens", [(0, 0), (1, 40), (5, 5000)])
def test_a_session_comes_back_as_it_was_on_a_clock_of_its_own(turns, tokens):
    session = a_session(turns, tokens)
    found = read(kept(session))
    assert found is not None
    for name in ("id", "home", "head", "ttl_s", "transcript", "metadata", "parent", "turns"):
        assert getattr(found, name) == getattr(session, name), name
    assert (found.created, found.expires_at) == (5.0 + 993, 77.5 + 993) and found.copy.expires == 1077.5
    assert list(found.events) == [{**event, "at": event["at"] + 993} for event in session.events]
    again = read(Kept(9, Records(MADE, THERE).of_session(found, 9)), clock=HERE)
    assert again is not None and again.turns == session.turns and again.created == session.created


def test_long_records_are_packed():
    session = a_session(1)
    session = replace(session, transcript=replace(session.transcript, ids=array("I", [7] * 100_000)))
    assert len(kept(session).record) < 20_000


def test_every_altered_bit_and_every_cut_is_noticed():
    record = kept(a_session(1, 40))
    rng = random.Random(0)
    for place in range(len(record.record)):
        spoiled = bytearray(record.record)
        spoiled[place] ^= 1 << rng.randrange(8)
        with pytest.raises(DamagedRecordError):
            read(Kept(4, bytes(spoiled)))
        with pytest.raises(DamagedRecordError):
            read(Kept(4, record.record[:place]))
    with pytest.raises(DamagedRecordError):
        read(Kept(4, record.record + b"x"))


def test_a_record_belongs_to_its_name_and_its_version():
    record = kept(a_session())
    for name in (RecordName(b"other", "sess_1"), RecordName(b"owner", "sess_2"), RecordName(b"owners", "ess_1")):
        with pytest.raises(DamagedRecordError):
            read(record, name)
    with pytest.raises(DamagedRecordError, match="version 4, and lies there as version 5"):
        read(record._replace(version=5))


@pytest.mark.parametrize(
    "made,named",
    [(MadeWith("model/2", "template"), "model revision"), (MadeWith("model/1", "t"), "chat template")],
)
def test_another_model_or_template_is_told_with_both_values(made, named):
    with pytest.raises(RecordDivergedError, match=f"{named}: the session has .*, this server has"):
        read(kept(a_session()), made=made)


def test_an_end_is_no_session_and_a_snapshot_is_no_session():
    records = Records(MADE, HERE)
    assert read(Kept(3, records.of_end(NAME, 3))) is None
    snapshot = RecordName(b"owner", "snapshot:kept")
    record = Kept(1, records.of_snapshot(snapshot, a_session(), 1))
    saved = records.snapshot(snapshot, record)
    assert saved.turns == a_session().turns and saved.salt == "salt"
    with pytest.raises(DamagedRecordError):
        records.session(snapshot, record, lambda salt: HOME)
    with pytest.raises(DamagedRecordError):
        records.snapshot(NAME, kept(a_session()))
    other = Records(MadeWith("model/2", "template"), HERE)
    with pytest.raises(RecordDivergedError, match="from_snapshot: 'kept' does not fit"):
        other.snapshot(snapshot, record)


def sealed(body: bytes, *, packed: bool) -> Kept:
    """A record that is whole, whatever is in it, as somebody may make it who knows how."""
    from agentcache.sessions.records import _digest

    head = struct.pack("<4sBBBQ", b"ACSR", 1, 1, packed, 4)
    return Kept(4, head + _digest(NAME, head, body) + body)


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"7", b'"text"', b"{}", b'{"format": 99}', b"[" * 100_000, b"\xff\xfe", b'{"format": 3, "head": 5}'],
)  # fmt: skip
def test_records_that_are_whole_and_hold_nonsense_are_damaged_ones(body):
    for packed, data in ((False, body), (True, zlib.compress(body)), (True, body)):
        with pytest.raises(DamagedRecordError):
            read(sealed(data, packed=packed))


def test_a_small_record_does_not_become_a_large_one():
    bomb = zlib.compress(b"\0" * 2**22, 9)
    assert len(inflated(bomb, 2**22)) == 2**22 > 100 * len(bomb)
    with pytest.raises(ValueError, match="more than"):
        inflated(bomb, 2**22 - 1)


def test_turns_must_end_where_the_transcript_ends():
    session = a_session(1)
    longer = replace(session, transcript=session.transcript.with_text([1, 2], "x"))
    with pytest.raises(DamagedRecordError, match="do not end where"):
        read(kept(longer))
