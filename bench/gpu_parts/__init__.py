"""The parts of ``bench/gpu_check.py``, each run in a process of its own."""
