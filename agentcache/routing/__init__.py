"""Which of several replicas gets a request: the one that has most of its prompt, unless it is too busy.

No torch and no Ray here: the same code routes on a cluster, in the simulation and in tests.
"""
