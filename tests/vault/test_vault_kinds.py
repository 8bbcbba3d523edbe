"""What keeps sessions can be exchanged: each kind of vault is asked in the same way."""

import inspect

import pytest

from agentcache.ray.vault import ActorVault, VaultRecords
from agentcache.sessions.vault import SessionVault
from agentcache.store.vault import StoreVault


@pytest.mark.parametrize("kind", [ActorVault, StoreVault, VaultRecords])
@pytest.mark.parametrize("method", ["load", "save", "ids_of"])
def test_every_vault_is_asked_in_the_same_way(kind, method):
    asked, expected = (inspect.signature(getattr(each, method)).parameters.values() for each in (kind, SessionVault))
    assert [(each.kind, each.default) for each in asked] == [(each.kind, each.default) for each in expected]
