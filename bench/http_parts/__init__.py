"""Parts of ``http_load.py``: a server whose model costs nothing, and clients that measure it."""
