"""The mutation score of the gallery: how many injected faults `check` finds."""
