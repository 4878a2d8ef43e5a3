"""Slow, obvious twins of the compiled core: what it must agree with."""
