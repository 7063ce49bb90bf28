"""Files that are torn, damaged, lost or hostile."""
