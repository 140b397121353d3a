"""Planning with learnt or known dynamics: models fitted to transitions, particles, and the search over actions."""
