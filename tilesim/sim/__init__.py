"""The simulator: machine, schedules, happens-before analysis, certificate, findings."""
