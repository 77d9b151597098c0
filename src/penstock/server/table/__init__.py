"""Tables: looks them up, creates, locks, truncates and vacuums them."""
