"""Pytest puts the folder of this file on the import path, so that tests share the helpers beside it."""
