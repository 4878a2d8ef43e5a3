"""Attacks: to be written."""
