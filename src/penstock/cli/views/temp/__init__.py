"""The text and the objects that the commands of penstock temp print."""
