"""File sources and sinks, their formats, and crashes at every step."""
