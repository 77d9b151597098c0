"""Draws measurements and recordings. Only this room imports matplotlib and jinja2 (pg-penstock[report])."""
