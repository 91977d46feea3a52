"""What a hung GPU says: a core dump becomes a report on which warps wait, for what, and why."""
