"""The values that cross rooms: frozen dataclasses, no behaviour beyond what they can say of themselves."""
