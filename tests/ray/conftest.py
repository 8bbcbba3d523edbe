from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import Cluster, cluster_here
from tiny_folder import write_tiny_folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-model")
    write_tiny_folder(folder)
    return folder


@pytest.fixture(scope="module")
def shared_cluster(tiny_model: Path) -> Iterator[Cluster]:
    with cluster_here(tiny_model, ("r1", "r2", "r3"), assign_timeout_s=1) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Three replicas, all alive and idle, of which the ingress knows."""
    shared_cluster.know()
    yield shared_cluster
    shared_cluster.revive()
