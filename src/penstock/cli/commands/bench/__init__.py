"""The commands of `penstock bench`, one file for each experiment."""
