"""All state backends against one model, and against each other."""
