"""What happened, as a picture."""
