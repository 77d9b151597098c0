"""The performance of volumes: RDS's limits, gp2's burst bucket, and volumes as `penstock lab up` names them.

Pure, except that it reads envelopes.toml from this folder. Package lab creates each volume from a file and a throttle.
"""
