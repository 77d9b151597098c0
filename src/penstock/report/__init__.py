"""Draws measurements and recordings. Only this package imports matplotlib and jinja2 (pg-penstock[report])."""
