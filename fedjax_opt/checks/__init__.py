"""What callers give, refused in one clear line where it cannot be."""
