"""The check of Python sources: what will break the prefix of the prompts that a program sends.

::

    text -> ast -> module   scopes, definitions, calls (module, places, names)
                     |  ─── program: imported names ── modules: other files of the project, parsed once
                     |
                   prompts  where text becomes a prompt ── reading: what the text is made of ── slots: AC101-106, AC203
                   sends    calls of models, lists they send ── history: AC401-405, settings: AC2/3/6, replays: AC207/208
                     |
                   report   findings with lines, columns and edits; fixes proves the edits
"""

from __future__ import annotations

from agentcache.lint.python.check import check_python
from agentcache.lint.python.fixes import verify_python_fix
from agentcache.lint.python.modules import ModuleFinder

__all__ = ["ModuleFinder", "check_python", "verify_python_fix"]
