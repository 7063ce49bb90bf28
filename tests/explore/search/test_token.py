"""Tokens: what they carry comes back, and what is wrong with one is said."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from hashlib import blake2b

import msgpack
import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError
from engine.explore.cases import Case, case_to_plain, plain_to_case, run_config
from engine.explore.cases.case import SCHEDULERS
from engine.explore.run import Measure
from engine.explore.search import Drawn, Swarm, Token, parse_token
from engine.explore.search.swarm import draw_case
from engine.explore.search.token import PREFIX
from engine.faults.fault import FaultMix, parse_fault
from tests.explore.subjects import counting_subject
from tests.malformed import packed_variants

FAULTS = (
    "crash:count[1]@120us",
    "crash:count[*]@before:snapshot.sync#2",
    "torn-write:*/_metadata*#1=17",
    "rescale:process@after:ack.send#3=4",
)

CASES = st.builds(
    Case,
    seed=st.text(max_size=8),
    config=st.dictionaries(
        st.sampled_from(["mode", "batch_size", "local_recovery", "cost.stragglers.count[0]"]),
        st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=4),
    ),
    faults=st.lists(st.sampled_from(FAULTS).map(parse_fault), max_size=3).map(tuple),
    mix=st.builds(FaultMix, st.dictionaries(st.sampled_from(["crash", "lose"]), st.integers(0, 1_000_000)),
                  st.integers(0, 5)),
    dropped=st.dictionaries(st.just("numbers/0"), st.just(((0, 2), (5, 9)))),
    checkpoints=st.none() | st.lists(st.integers(0, 10**12), max_size=3).map(tuple),
    scheduler=st.sampled_from(SCHEDULERS),
    schedule=st.dictionaries(st.integers(0, 10**6), st.integers(1, 20), max_size=4),
    preemptions=st.integers(0, 9),
)  # fmt: skip


@given(CASES)
def test_every_case_survives_plain_form_and_token(case: Case) -> None:
    """Whatever a case says, its plain form and its token say the same."""
    assert plain_to_case(case_to_plain(case)) == case
    token = Token("job.py", {"n": "3"}, "f", case, "at-least-once", "0123", "c", "ab" * 16)
    assert parse_token(str(token)) == token


def test_a_drawn_case_needs_only_its_seed() -> None:
    """A token of a seed is short, and stands for exactly the case that is drawn from it."""
    subject = counting_subject()
    swarm = Swarm(fixed={"batch_size": 2}, usual={"cost.record_ns": 7})
    token = Token.of(subject, Drawn("nightly/123456", swarm), digest="ab" * 16)
    assert len(str(token)) < 300
    read = parse_token(str(token))
    assert read == token
    assert read.to_case(subject) == draw_case(swarm, Measure.of(subject), "nightly/123456")
    assert read.is_of_this_code(subject)


def test_spaces_and_line_breaks_of_a_mail_do_no_harm() -> None:
    """A token that was wrapped is the same token."""
    text = str(Token("job.py", {}, "f", Case(seed="a" * 100)))
    assert parse_token(f" {text[:40]}\n  {text[40:]} \n") == parse_token(text)


@pytest.mark.parametrize("at", [8, 20, -2])
def test_a_changed_character_is_noticed(at: int) -> None:
    """One other character anywhere: torn."""
    text = str(Token("job.py", {}, "f", Case()))
    other = "B" if text[at] != "B" else "C"
    position = at % len(text)
    with pytest.raises(ConfigurationError, match="torn"):
        parse_token(text[:position] + other + text[position + 1 :])


@pytest.mark.parametrize("text", [PREFIX, f"{PREFIX}AAAA", f"{PREFIX}AAAAAAAAA", f"{PREFIX}not base64!"])
def test_what_is_cut_off_is_noticed(text: str) -> None:
    """Any beginning of a token is refused."""
    with pytest.raises(ConfigurationError, match="torn"):
        parse_token(text)


def test_other_formats_are_refused_by_name() -> None:
    """A token of another version is told from a text that is none."""
    with pytest.raises(ConfigurationError, match="format weir3"):
        parse_token("weir3.abc")
    with pytest.raises(ConfigurationError, match="no token"):
        parse_token("hello")


def test_another_job_is_refused() -> None:
    """A token is good for the job that it was made from; parallelisms belong to it."""
    token = Token.of(counting_subject(), Case())
    token.check(counting_subject(records=99))
    with pytest.raises(ConfigurationError, match="of another job"):
        replace(token, fingerprint="other").check(counting_subject())


def test_another_version_of_the_swarm_is_refused() -> None:
    """This version cannot know the meaning of a seed in another version."""
    subject = counting_subject()
    token = Token.of(subject, Drawn("1", Swarm(), version=0))
    with pytest.raises(ConfigurationError, match="version 0 of the swarm"):
        parse_token(str(token)).to_case(subject)


def test_what_is_no_case_is_refused() -> None:
    """Unknown names and wrong shapes are errors, not ignored."""
    for plain in ({"speed": 3}, {"faults": 3}, {"scheduler": "slow"}, {"mix": {}}, {"faults": ["crash"]}):
        with pytest.raises(ConfigurationError):
            plain_to_case(plain)


def test_a_token_uses_only_characters_that_survive_everywhere() -> None:
    """Letters, digits, dot, minus and underscore: one word in every shell and chat."""
    body = str(Token("job.py", {}, "f", Case(seed="ü" * 50)))[len(PREFIX) :]
    assert body.replace("-", "").replace("_", "").isalnum()
    assert base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


RUNS = (
    Case(
        config={"batch_size": 2, "mode": "aligned"},
        faults=(parse_fault(FAULTS[0]),),
        mix=FaultMix({"crash": 7}, 2),
        dropped={"numbers/0": ((0, 2),)},
        checkpoints=(5,),
        schedule={3: 1, 9: 2},
        preemptions=2,
    ),
    Drawn("nightly/1", Swarm(("aligned",), {"batch_size": 2}, ("crash",), {"retained": 1})),
)


@pytest.mark.parametrize("run", RUNS, ids=["case", "drawn"])
def test_a_token_that_is_malformed_inside_is_refused(run: Case | Drawn) -> None:
    """With any node replaced and a checksum that fits: another run, or an error that says what is wrong."""
    whole = str(Token("job.py", {"n": "3"}, "f", run, "at-least-once", "0123", "c"))
    raw = base64.urlsafe_b64decode(whole[len(PREFIX) :] + "===")
    packed = zlib.decompress(raw[5:]) if raw[4:5] == b"\x01" else raw[5:]
    refused, others = 0, list(packed_variants(packed))
    for other in others:
        body = b"\x00" + other
        text = PREFIX + base64.urlsafe_b64encode(blake2b(body, digest_size=4).digest() + body).decode().rstrip("=")
        try:
            parsed = parse_token(text).run
            run_config(parsed if isinstance(parsed, Case) else Case(config=parsed.swarm.fixed))
        except ConfigurationError:
            refused += 1
    assert refused > 0.7 * len(others)


def test_a_malformed_token_says_where() -> None:
    """The place, what belongs there, what is there, and what to do."""
    body = b"\x00" + msgpack.packb(["job.py", {"n": 3}, "f", "c", None, None, [{}], b""])
    text = PREFIX + base64.urlsafe_b64encode(blake2b(body, digest_size=4).digest() + body).decode().rstrip("=")
    with pytest.raises(ConfigurationError) as refused:
        parse_token(text)
    assert "it[1]['n'] should be a text, and is 3" in str(refused.value)
    assert "fix: copy it again" in str(refused.value)


def test_a_setting_of_another_type_is_refused() -> None:
    """Before a run is made with it, wherever the case comes from."""
    for config in ({"batch_size": "x"}, {"mode": 3}, {"cost.record_ns": None}, {"parallelism": "two"}):
        with pytest.raises(ConfigurationError, match=r"must be|of type"):
            run_config(Case(config=config))
