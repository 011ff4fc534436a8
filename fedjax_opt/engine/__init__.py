"""What runs a simulation; see `simulator` for the way through it."""
