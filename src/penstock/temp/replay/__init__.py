"""The user's own statements, with their temporary work in one place and in another, compared."""
