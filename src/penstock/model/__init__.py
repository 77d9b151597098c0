"""The values that rooms pass to each other: frozen dataclasses, with properties of their own fields at most."""
