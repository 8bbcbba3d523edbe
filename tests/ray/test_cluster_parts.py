"""Settings of clusters, what replicas on one machine do not share, merged answers, and the sessions' second copies."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentcache.errors import SettingsError
from agentcache.local.exchange import Head
from agentcache.ray import build_app
from agentcache.ray.app import app, cpus
from agentcache.ray.health import cluster_health
from agentcache.ray.joining import cause_of, kept_port
from agentcache.ray.log_lines import ReplicaLines
from agentcache.ray.merged_metrics import merged_metrics
from agentcache.ray.merging import merged
from agentcache.ray.parts import News, Whole
from agentcache.ray.places import own_settings
from agentcache.ray.settings import ClusterSettings, checked_cluster, load_cluster_settings
from agentcache.ray.vault import VaultRecords
from agentcache.routing.feed import Cursor, FeedDelta
from agentcache.sessions.vault import Kept, RecordName
from agentcache.settings import Settings

# -- settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"replicas": 0}, "--replicas: got 0"),
        ({"replicas": 2, "max_replicas": 3}, "--replicas 2 is a fixed number"),
        ({"min_replicas": 2}, "--min-replicas 2 without --max-replicas"),
        ({"min_replicas": 3, "max_replicas": 2}, "--min-replicas 3 is more than --max-replicas 2"),
        ({"target_ongoing_requests": 4}, "--target-ongoing-requests 4 without --max-replicas"),
        ({"object_store_memory": "1MB"}, "--object-store-memory"),
        ({"object_store_memory": "much"}, "got 'much', expected a size"),
        ({"nonsense": 1}, "--nonsense: no such setting"),
    ],
)
def test_what_cannot_be_is_refused_by_its_flag(fields, said):
    with pytest.raises(SettingsError) as refused:
        checked_cluster(fields)
    assert said in str(refused.value)


def test_a_table_of_the_settings_file_is_read_and_the_command_line_wins(tmp_path):
    config = tmp_path / "agentcache.toml"
    config.write_text('[serve]\nmodel = "x"\n[up]\nreplicas = 3\ndrain-timeout-s = 5\nobject_store_memory = "1GiB"\n')
    found = load_cluster_settings({"replicas": 2, "min_replicas": None}, config)
    assert (found.replicas, found.drain_timeout_s, found.object_store_memory) == (2, 5, 2**30)
    config.write_text("[up]\nreplicas = 'many'\n")
    with pytest.raises(SettingsError, match=r"agentcache.toml: \[up\] --replicas: got 'many'"):
        load_cluster_settings({}, config)


def test_defaults_that_follow_from_others():
    fixed, scaled = ClusterSettings(replicas=3), ClusterSettings(max_replicas=5)
    assert (fixed.least_replicas, fixed.most_replicas, fixed.scales) == (3, 3, False)
    assert (scaled.least_replicas, scaled.most_replicas, scaled.scales) == (1, 5, True)
    assert ClusterSettings().least_replicas == 1
    server = Settings(max_running=4, max_waiting=10, max_model_len=4096, threads=2)
    assert fixed.ongoing(server) > 14  # so that the engine itself says that its queue is full
    assert fixed.drain_s(server) == pytest.approx(409.6, abs=1) and fixed.drain_s(Settings(max_model_len=64)) == 60
    assert cpus(server, fixed) == 2 and cpus(server, ClusterSettings(cpus_per_replica=0.5)) == 0.5


def test_an_application_is_checked_before_there_is_a_cluster():
    with pytest.raises(SettingsError, match="--replica r1: replicas of a cluster get their names from it"):
        build_app(Settings(replica="r1"))
    with pytest.raises(SettingsError, match="port: connections belong to Ray's proxies"):
        app({"port": 80})
    with pytest.raises(SettingsError, match="--page-size"):
        app({"page-size": 0})
    with pytest.raises(SettingsError, match="--replicas"):
        app({"replicas": "x"})


def test_replicas_on_one_machine_share_no_folder_no_file_and_no_port():
    settings = Settings(
        disk_dir=Path("/pages"), trace=Path("/tmp/t.jsonl"), kv_events="tcp://*:5557", kv_events_replay="tcp://*:5600"
    )
    mine = own_settings(settings, "abc", 2)
    assert (mine.replica, mine.disk_dir, mine.trace) == ("abc", Path("/pages/replica-2"), Path("/tmp/t-2.jsonl"))
    assert (mine.kv_events, mine.kv_events_replay) == ("tcp://*:5645", "tcp://*:5688")
    connected = own_settings(Settings(kv_events="tcp://router:5557"), "abc", 2)
    assert connected.kv_events == "tcp://router:5557" and connected.disk_dir is None


# -- merged answers -----------------------------------------------------------------------------------------------------


def whole(replica, body, status=200, kind=b"application/json"):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Whole(replica, Head(status, [(b"content-type", kind), (b"content-length", b"1"), (b"x", b"y")]), content)


def test_metrics_of_replicas_are_one_exposition():
    one = (
        "# HELP a_total Some.\n# TYPE a_total counter\na_total 1.0\n"
        '# HELP h Seconds\n# TYPE h histogram\nh_bucket{le="1.0"} 1.0\nh_bucket{le="+Inf"} 2.0\nh_count 2.0\nh_sum 3.0\n'
    )
    other = one.replace("1.0\n# HELP h", "5.0\n# HELP h") + '# HELP late Late\n# TYPE late gauge\nlate{x="a b"} 7.0\n'
    text = merged_metrics({"r1": one, "r2": other})
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {(s.labels["replica"], s.value) for s in families["a"].samples} == {("r1", 1.0), ("r2", 5.0)}
    assert len(families["h"].samples) == 8 and text.count("# TYPE h ") == 1
    assert families["late"].samples[0].labels == {"replica": "r2", "x": "a b"}
    assert merged_metrics({"r1": one + "# EOF\n", "r2": one + "# EOF\n"}, openmetrics=True).count("# EOF") == 1


def test_pages_are_added_up_and_each_replica_is_told_of():
    body = {"page_size": 16, "total": 10, "free": 4, "live": 1, "cached": 5, "pinned": 0, "running": 1, "waiting": 0}
    tier = {"name": "host", "pages": 1, "used": 1, "capacity": 8, "unit": "pages", "counts": {"hits": 2}}
    found = merged("/v1/cache", {}, [whole("b", {**body, "tiers": [tier]}), whole("a", {**body, "tiers": [tier]})])
    told = json.loads(found.body)
    assert (told["total"], told["page_size"], told["running"]) == (20, 16, 2)
    assert told["tiers"] == [{**tier, "pages": 2, "used": 2, "capacity": 16, "counts": {"hits": 4}}]
    assert list(told["replicas"]) == ["a", "b"]
    headers = dict(found.head.headers)
    assert headers[b"content-length"] == str(len(found.body)).encode() and headers[b"x"] == b"y"


def test_an_error_of_one_replica_is_the_answer_of_all():
    refused = whole("a", {"error": {"message": "no"}}, 401)
    assert merged("/metrics", {}, [whole("b", b"x 1\n"), refused]) == refused


def test_a_session_that_two_replicas_have_is_told_once_as_the_later_copy_has_it():
    old = {"id": "s", "turns": [1], "created_at": 1, "expires_at": 5}
    new, other = {**old, "turns": [1, 2]}, {**old, "id": "t", "created_at": 0}
    found = merged("/v1/sessions", {}, [whole("a", {"data": [old]}), whole("b", {"data": [new, other]})])
    assert json.loads(found.body) == {"object": "list", "data": [other, new]}


def test_trees_become_one_forest():
    def tree(salt, text):
        nodes = [
            {"namespace": 0, "id": 0, "parent": None, "text": text},
            {"namespace": 0, "id": 1, "parent": 0, "text": ""},
        ]
        return {"page_size": 16, "namespaces": [{"id": 0, "salt": salt}], "nodes": nodes, "truncated": False}

    found = json.loads(
        merged(
            "/v1/cache/tree", {}, [whole("a", tree(None, "x")), whole("b", tree("s", "y")), whole("c", tree(None, "z"))]
        ).body
    )
    assert found["namespaces"] == [{"id": 0, "salt": None}, {"id": 1, "salt": "s"}]
    assert [(node["replica"], node["namespace"], node["id"], node["parent"]) for node in found["nodes"]] == [
        ("a", 0, 0, None), ("a", 0, 1, 0), ("b", 1, 2, None), ("b", 1, 3, 2), ("c", 0, 4, None), ("c", 0, 5, 4),
    ]  # fmt: skip


def test_health_is_that_of_the_replicas_and_of_what_they_work_with():
    delta = FeedDelta(None, Cursor(1, 0))
    good = News("a", delta, True, "ok", {"store": None})
    bad = News("b", delta, False, "the last 5 steps failed", {"store": "no answer"})
    healthy, body = cluster_health([good, bad], 2)
    assert healthy and body["status"] == "degraded" and body["replicas"] == {"up": 1, "total": 2}
    assert body["components"]["replica b"] == {"status": "unavailable", "reason": "the last 5 steps failed"}
    assert body["components"]["store"] == {"status": "unavailable", "reason": "no answer (replica b)"}
    assert cluster_health([good], 1)[1]["status"] == "ok"
    assert cluster_health([], 2) == (
        False,
        {
            "status": "unavailable",
            "replicas": {"up": 0, "total": 2},
            "components": {},
            "reason": "no replica is there yet",
        },
    )
    assert not cluster_health([bad], 1)[0]


@pytest.mark.parametrize("style, line", [("text", "a line replica=r1"), ("json", '{"path": "/x", "replica": "r1"}')])
def test_access_lines_say_whose_they_are(style, line):
    given = "a line" if style == "text" else '{"path": "/x"}'
    record = logging.LogRecord("n", logging.INFO, "f", 1, "%s", (given,), None)
    assert ReplicaLines("r1", style).format(record) == line


# -- the sessions' second copies ----------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_record_is_written_by_whoever_knew_the_last_one():
    records, name = VaultRecords(10_000), RecordName(b"me", "s1")
    assert records.load(name) is None and records.save(name, b"one", 0, 60)
    assert not records.save(name, b"mine", 0, 60) and records.save(name, b"two", 1, 60)
    assert records.load(name) == Kept(2, b"two")
    assert records.load(RecordName(b"other", "s1")) is None
    records.save(RecordName(b"me", "snapshot:x"), b"", 0, 60)
    assert records.ids_of(b"me") == ["s1"]


def test_records_end_with_their_time():
    clock = Clock()
    records, name = VaultRecords(10_000, clock), RecordName(b"me", "s1")
    records.save(name, b"one", 0, 60)
    clock.now = 61
    assert records.ids_of(b"me") == [] and records.load(name) is None and records.save(name, b"again", 0, 60)
    assert records.figures()["records"] == 1


def test_memory_is_bounded_and_what_was_not_used_for_longest_goes():
    records = VaultRecords(10_000)
    names = [RecordName(b"me", f"s{number}") for number in range(4)]
    for name in names[:3]:
        assert records.save(name, b"x" * 2500, 0, 60)
    records.load(names[0])
    records.save(names[3], b"x" * 2500, 0, 60)
    assert [records.load(name) is not None for name in names] == [True, False, True, True]
    assert records.figures()["bytes"] <= 10_000


# -- the address --------------------------------------------------------------------------------------------------------


def test_the_port_is_kept_until_rays_proxy_binds_it_beside():
    with kept_port(Settings(port=0)) as port:
        with pytest.raises(SettingsError, match=f"--port {port}"), kept_port(Settings(port=port)):
            pass
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
        with socket.socket() as proxy:
            proxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            proxy.bind(("127.0.0.1", port))
            proxy.listen()
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                assert proxy.accept()[1] == client.getsockname()


def test_what_went_wrong_is_told_without_a_traceback():
    told = "ray.exceptions.RayTaskError(RuntimeError): x\n  File y\nRuntimeError: Failed to bind to address 'a:1'."
    assert cause_of("", told) == "Failed to bind to address 'a:1'."
    assert cause_of("", " something \n else ") == "something else" and cause_of("") == "Ray does not say why"


@pytest.mark.parametrize("name", ["max_connections", "head_timeout_s", "send_timeout_s"])
def test_limits_that_rays_proxy_does_not_keep_are_refused_where_it_is_configured_by_others(name):
    with pytest.raises(SettingsError, match=name):
        app({"model": "x", name: "5"})
