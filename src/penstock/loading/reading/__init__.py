"""Objects on their way in: opened, cut into blocks, fed to sessions."""
