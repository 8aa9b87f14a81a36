"""Print the mutation table: which small designs notice when a rule of the semantics is switched off?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mutation.answers import both, look
from mutation.designs import DESIGNS
from mutation.rules import RULES


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a rule is switched off and none of its designs notices."""
    parser = argparse.ArgumentParser(description="Switch each rule off; which designs notice?")
    parser.add_argument("-k", default="", help="only rules whose name contains this")
    parser.add_argument("--all", action="store_true", help="try every design, not only those named beside the rule")
    options = parser.parse_args(arguments)
    chosen = [rule for rule in RULES if options.k in rule.name]
    if not chosen:
        print(f"no rule contains {options.k!r}; see tests/mutation/rules", file=sys.stderr)
        return 2
    caught = 0
    for rule in chosen:
        seen = look(rule, list(DESIGNS) if options.all else rule.red)
        reds = [one for one in seen if one.red]
        caught += bool(reds) and (options.all or len(reds) == len(seen))
        print(f"{'caught' if reds else 'MISSED'}  {rule.home:<9} {rule.says}  ({rule.source})")
        print(f"{'':8}{', '.join(c.where.removeprefix('fencepost.') for c in rule.changes)}")
        for one in reds if options.all else seen:
            print(f"{'':8}{one.design}: {one.declared} -> {one.without}")
        for one in both(rule, RULES):
            print(f"{'':8}{one.design}, without it in both engines: {one.declared} -> {one.without}")
        sys.stdout.flush()
    print(f"{caught} of {len(chosen)} rules: each named design notices ({100 * caught / len(chosen):.0f} %)")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
