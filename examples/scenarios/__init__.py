"""Small jobs made to be explored: one for each area of the engine in which a mistake is to show."""
