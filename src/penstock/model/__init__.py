"""Values that packages of penstock pass to each other: frozen dataclasses whose properties use only their fields."""
