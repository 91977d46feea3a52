"""How often the line a report names first is the line to change, on bugs whose culprit is known."""
