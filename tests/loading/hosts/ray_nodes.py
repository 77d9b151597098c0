"""A Ray cluster of three nodes on this machine: `python tests/loading/hosts/ray_nodes.py`, in a process of its own.

It prints the cluster's address. At the line "remove", it removes a node as by a crash; it ends with its standard input.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    """Keep the cluster up until standard input ends."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "remove":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            print("removed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
