"""Small jobs for searches: one for each area of the engine, so that a mistake there becomes visible."""
