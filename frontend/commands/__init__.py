"""One module for each command of `fencepost`: it parses, calls, prints and returns the exit code."""
