"""Kernels that are compiled on the machine they run on: attention, products with packed weights and row operations.

They need numba, which brings its own compiler, and do in float32 what the torch code beside this package does, in the same
shapes but with keys kept the other way round (``KVStore``).  Nothing here is imported unless ``available.compiles``.
"""
