"""Recording launches without a GPU, whatever the compiler."""
