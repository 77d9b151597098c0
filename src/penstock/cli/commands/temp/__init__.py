"""The commands of `penstock temp`."""
