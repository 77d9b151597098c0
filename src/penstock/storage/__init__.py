"""What volumes deliver: RDS's limits of IOPS and throughput, gp2's burst bucket, and volumes as `lab up` names them.

Pure, except that it reads envelopes.toml from this folder. The lab creates volumes from a file and a throttle.
"""
