"""What kept a prompt from being reused, in the linter's codes: the ``findings`` of a response.

The linter sees files of requests; the server sees what the cache did with one.  So it says only what it knows: where a prompt
parted from what is cached, what stood there, and how much of what follows is equal again and was computed twice for nothing.
"""
