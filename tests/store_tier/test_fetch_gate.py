"""Prices of fetching and of computing, and what the gate makes of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.store.gate import FetchGate, Offer, TransferLine

MB = 1_000_000


def measured(latency_s: float, bandwidth: float, page_bytes: int = MB, page_tokens: int = 16) -> FetchGate:
    """A gate in front of a store of this latency and bandwidth (bytes a second)."""
    gate = FetchGate(page_bytes, page_tokens)
    gate.answered(latency_s)
    for _ in range(3):
        gate.transferred(page_bytes, latency_s + page_bytes / bandwidth)
    return gate


@pytest.mark.parametrize(
    ("latency_s", "bandwidth", "token_s", "pages", "worth"),
    [
        (0.001, 1000 * MB, 0.005, 100, 100),  # 80 ms of computing for 1 ms of network, each page
        (0.001, 1000 * MB, 0.005, 1, 1),
        (0.001, 1000 * MB, 0.00001, 100, 0),  # a fast device: 0.16 ms of computing
        (0.2, 1000 * MB, 0.005, 2, 0),  # 160 ms of computing do not pay for the latency
        (0.2, 1000 * MB, 0.005, 3, 3),  # 240 ms do
        (0.001, 10 * MB, 0.005, 1000, 0),  # 100 ms of network a page
        (0.001, 13 * MB, 0.005, 1000, 1000),  # 77 ms
        (0.001, 1000 * MB, 0.0, 50, 50),  # nothing was computed yet
        (0.001, 1000 * MB, 0.005, 0, 0),
    ],
)
def test_pages_are_fetched_where_that_costs_less_than_to_compute_them(latency_s, bandwidth, token_s, pages, worth):
    assert measured(latency_s, bandwidth).worth(Offer(pages, token_s)) == worth


def test_what_does_not_arrive_in_time_is_not_asked_for():
    gate = measured(0.01, 100 * MB)  # 10 ms a page
    assert gate.worth(Offer(100, 0.01, left_s=0.115)) == 10
    assert gate.worth(Offer(100, 0.01, left_s=0.015)) == 0
    assert gate.worth(Offer(100, 0.01, left_s=-1.0)) == 0


def test_who_stands_before_counts():
    gate = measured(0.01, 100 * MB)
    assert gate.worth(Offer(10, 0.001)) == 10  # 110 ms against 160
    assert gate.worth(Offer(10, 0.001, ahead_s=0.06)) == 0


def test_the_first_transfers_are_small_and_are_the_measurement():
    gate = FetchGate(MB, 16)
    assert gate.bandwidth is None
    for pages in (1, 2, 4):
        assert gate.worth(Offer(100, 0.005)) == pages and gate.open_for(0.005, 2.0)
        gate.transferred(pages * MB, 0.001)
    assert gate.worth(Offer(100, 0.005)) == 100


def test_a_first_transfer_that_was_slow_for_reasons_of_its_own_closes_no_gate():
    gate = FetchGate(MB, 16)
    gate.answered(0.001)
    for pages, seconds in ((1, 0.3), (2, 0.003), (4, 0.005)):
        assert gate.worth(Offer(100, 0.005, left_s=1.0)) == pages
        gate.transferred(pages * MB, seconds)
    assert gate.worth(Offer(100, 0.005)) == 100


def test_a_latency_that_no_page_pays_for_allows_no_first_transfer():
    gate = FetchGate(MB, 16)
    gate.answered(1.0)
    assert gate.worth(Offer(100, 0.005)) == 0


def test_nobody_waits_longer_than_computing_would_take_nor_than_was_allowed():
    gate = FetchGate(MB, 16)
    assert gate.deadline_s(100, 0.001, longest_s=2.0) == pytest.approx(1.6)
    assert gate.deadline_s(1000, 0.001, longest_s=2.0) == 2.0
    assert gate.deadline_s(1, 0.00001, longest_s=2.0) == FetchGate.FLOOR_S
    assert gate.deadline_s(1, 0.0, longest_s=2.0) == 2.0


def test_a_network_that_recovers_opens_the_gate_after_a_few_measurements():
    gate = measured(0.001, 1000 * MB)
    for _ in range(5):
        gate.answered(1.0)
        gate.transferred(MB, 1.5)
    assert gate.worth(Offer(10, 0.002)) == 0 and not gate.open_for(0.002, 2.0)
    for _ in range(6):
        gate.answered(0.001)
        gate.transferred(MB, 0.002)
    assert gate.worth(Offer(10, 0.002)) == 10 and gate.open_for(0.002, 2.0)


def test_a_gate_looks_again_when_what_it_knows_is_old():
    now = [100.0]
    gate = FetchGate(MB, 16, clock=lambda: now[0])
    assert gate.stale
    gate.transferred(MB, 0.1)
    assert not gate.stale
    now[0] += FetchGate.STALE_S + 0.1
    assert gate.stale
    gate.looked()
    assert not gate.stale


seconds = st.floats(1e-5, 1.0)
rates = st.floats(1e5, 1e10)


@given(latency=seconds, rate=rates, sizes=st.lists(st.integers(1, 10**8), min_size=1, max_size=20))
def test_a_steady_network_is_measured_as_it_is(latency, rate, sizes):
    line = TransferLine()
    line.answered(latency)
    for size in sizes:
        line.transferred(size, latency + size / rate)
    assert line.latency_s == pytest.approx(latency)
    # A transfer that takes no measurable time says only that it is fast.
    if all(size / rate > 1e-5 for size in sizes):
        assert line.bandwidth == pytest.approx(rate, rel=1e-3)


@given(
    old=st.tuples(seconds, rates), new=st.tuples(seconds, rates), count=st.integers(20, 30), size=st.just(50 * MB)
)  # fmt: skip
def test_what_a_network_was_is_forgotten(old, new, count, size):
    line = TransferLine()
    for latency, rate in (old, *[new] * count):
        line.answered(latency)
        line.transferred(size, latency + size / rate)
    assert line.latency_s + size / line.bandwidth == pytest.approx(new[0] + size / new[1], rel=0.3)


@given(
    latency=seconds,
    rate=rates,
    token_s=st.floats(0, 1),
    pages=st.integers(0, 5000),
    left=st.floats(0, 100),
    ahead=st.floats(0, 10),
)
def test_what_is_fetched_pays_and_arrives_in_time_by_what_is_known(latency, rate, token_s, pages, left, ahead):
    gate = measured(latency, rate)
    worth = gate.worth(Offer(pages, token_s, left, ahead))
    assert 0 <= worth <= pages
    assert gate.bandwidth is not None and gate.latency_s is not None
    fetch_s = ahead + gate.latency_s + worth * MB / gate.bandwidth
    if worth:
        assert fetch_s <= left * (1 + 1e-6)
        assert token_s == 0 or fetch_s < worth * 16 * token_s * (1 + 1e-6)
    elif pages and token_s:  # none pays: then the most that come in time do not
        most = min(pages, math.floor((left - ahead - gate.latency_s) * gate.bandwidth / MB))
        assert most < 1 or ahead + gate.latency_s + most * MB / gate.bandwidth >= most * 16 * token_s * (1 - 1e-6)


@given(latency=seconds, rate=rates, token_s=st.floats(1e-6, 1), pages=st.integers(1, 1000))
def test_more_pages_never_pay_less(latency, rate, token_s, pages):
    gate = measured(latency, rate)
    fewer, more = gate.worth(Offer(pages, token_s)), gate.worth(Offer(pages + 1, token_s))
    assert more in (0, pages + 1) and (not fewer or more)


@given(latency=seconds, rate=rates, token_s=st.floats(1e-6, 1))
def test_a_gate_that_says_it_is_open_is_open_for_some_number_of_pages(latency, rate, token_s):
    gate = measured(latency, rate)
    pays = any(gate.worth(Offer(2**power, token_s, left_s=1000.0)) for power in range(40))
    assert gate.open_for(token_s, 1000.0) == pays or token_s * 16 == pytest.approx(MB / gate.bandwidth, rel=1e-3)
