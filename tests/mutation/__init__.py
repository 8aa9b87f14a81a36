"""The mutation table: each rule of the semantics, switched off alone, must turn every design red that is named beside it.

Where a line belongs:
- `rules/`: one file for each engine, and beside it one for what streams that meet add. A rule says what it is, where that is
  documented, which text is replaced by which, and which designs notice. A new line of an engine that makes an edge needs one.
- `designs/`: one file for each subject. A design stands on few rules, and is entered with its answer (`declared.py`).
- `switching.py` swaps a function's code, `answers.py` asks an engine, tests/mutation_table.py prints the table.
"""
