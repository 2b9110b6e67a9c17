"""Small faults planted in our own scheduler, one at a time: what the simulation does not notice, it does not check.

Nothing here imports the scheduler, so that a fault can be planted before anybody does.
"""
