"""Checks of what callers give; each refusal is one clear line."""
