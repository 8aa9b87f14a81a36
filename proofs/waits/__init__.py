"""Questions about synchronisation: which waits are needed, what repairs a design, which placements are minimal."""
