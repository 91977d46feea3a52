"""A server of the Language Server Protocol: findings, waits and repairs in an editor."""
