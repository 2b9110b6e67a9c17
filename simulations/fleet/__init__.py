"""The pure core alone: a discrete-event world around `Fleet`, every decision judged (`python -m simulations.fleet`)."""
