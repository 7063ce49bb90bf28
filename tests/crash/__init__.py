"""Real processes killed at any instant, then resumed; power cuts at every call to the file system."""
