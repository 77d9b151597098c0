"""Draws what was measured. The one room that knows matplotlib, which penstock[report] installs."""
