"""Replicas on Ray Serve: ``agentcache up --replicas N``, and ``build_app`` for people with a cluster (extra ``ray``)."""
