"""Short jobs in which a mutant of an area can show, where no example has what it needs."""
