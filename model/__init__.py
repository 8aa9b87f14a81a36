"""What a design is: program, language, operations, platform, runs, hazards and answers."""

if __name__ != "fencepost.model":
    raise ImportError(f"this folder is the package fencepost.model, not {__name__!r}; `import fencepost.model`")
