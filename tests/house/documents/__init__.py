"""Pages: their links, commands, transcripts and words."""
