"""The template check: does a chat template write the beginning of a conversation the same way each turn?

::

    template ──► writer ──► turns of fixed conversations ──► survey (with every option) ──► faults ──► findings
                                                                    '──► rows of the table
"""

from agentcache.lint.templates.check import check_template, refuse_unless_chat, template_findings
from agentcache.lint.templates.command import template_command
from agentcache.lint.templates.report import Outcome, Row, TemplateReport
from agentcache.lint.templates.sources import Subject, find_subject
from agentcache.lint.templates.writer import TemplateSource

__all__ = [
    "Outcome",
    "Row",
    "Subject",
    "TemplateReport",
    "TemplateSource",
    "check_template",
    "find_subject",
    "refuse_unless_chat",
    "template_command",
    "template_findings",
]
