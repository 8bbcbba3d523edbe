"""The model on a GPU: the Triton kernels of ``agentcache_kernels.gpu`` in the order of a forward pass, steps as CUDA graphs,
pages moved beside the computation.

::

    runner.py     one step: copies, then a decode step from a graph, or any other step launched kernel by kernel
    forward.py    the forward pass
    decode.py     what a graph reads and writes, and what is captured          graphs.py   capturing
    pages.py      copies inside the pool, to host memory and back              side.py     beside the computation
    sampling.py   one draw a row                                               memory.py   how many pages fit
    packed.py     a step's numbers in one transfer                              pinned.py  host memory for pages

Nothing here asks for a GPU but ``graphs.CudaGraphs``, ``side.SideStream`` and two functions of ``memory.py``: with tensors of
a CPU the same code runs under Triton's interpreter, which is how tests hold it.
"""
