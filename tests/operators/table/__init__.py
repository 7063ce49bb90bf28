"""Tables in directories."""
