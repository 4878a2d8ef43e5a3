"""Real Chromium: a pool of browser workers, and environments whose pages are read from it."""
