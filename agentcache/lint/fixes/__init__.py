"""Mends files: which findings can be mended, what is rewritten, and the proof that it helps and loses nothing."""
