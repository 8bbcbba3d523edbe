"""Asks a running server for its findings."""
