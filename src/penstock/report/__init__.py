"""Draws measurements. This is the only room that imports matplotlib, which penstock[report] installs."""
