"""Values of temporary work (sorts, hashes, temporary tables) that packages of penstock pass to each other."""
