"""What `check` and the proof kernel say of every corpus, in files that are compared."""
