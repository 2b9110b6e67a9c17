"""Programs that use the official clients the way their users do, each in a process of its own.

Most of these clients run on asyncio, which has no place in ours. A program is started with the daemon's address and
with what to do: `do` all that its client can do, asserting what comes of it, or `leave` requests in their middle.
"""
