"""What several features need: errors, units, values, connections, SQL files, sources, this machine."""
