"""Sessions over HTTP: what they are made from, their turns, leases, and where they are kept."""
