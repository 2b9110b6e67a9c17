"""What would happen on other hardware: recorded requests, played on the real scheduler in a simulated machine."""
