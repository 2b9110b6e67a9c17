"""Ways through the space of interleavings: which step to disturb, whom to run first."""
