"""What volumes deliver: RDS's envelopes of IOPS and throughput, gp2's burst bucket, and volumes as `lab up` names them.

Pure, but for envelopes.toml, which lies beside it. Where a volume is made of a file and a throttle is the lab's.
"""
