"""What is written: output, messages, bars, and what a terminal may be sent."""
