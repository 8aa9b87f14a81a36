"""One place per operation: what it accesses, which edges it makes, when it is enabled.

`lower(operation, context)` gives the operation's effects; the registry maps every operation class of
`fencepost.model.program` to its rule. The rules live by family: `device`, `host`, `meetings`, `sync`.
"""

from fencepost.model.operations.registry import RULES, Context, Rule, lower, lower_node, question_rule

__all__ = ["RULES", "Context", "Rule", "lower", "lower_node", "question_rule"]

# The families enter their rules when they are imported.
from fencepost.model.operations import device, host, meetings, sync  # noqa: F401
