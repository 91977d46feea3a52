"""Results of checks as text for people and as JSON for programs."""
