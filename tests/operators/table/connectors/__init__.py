"""Tables by options."""
