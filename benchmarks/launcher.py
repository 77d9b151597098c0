"""Starts one process, waits for it, and prints its cost: run by processes.py as a small interpreter of its own.

Linux has a child's peak memory start at that of the process which starts it, so this one must stay small: only the
standard library, and little of it. Its argument is a JSON object: `argv`, and `gunzip`, a file to decompress into the
standard input, or null.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time


def main() -> None:
    """Run what the argument describes and print the cost, or what the process said where it failed."""
    order = json.loads(sys.argv[1])
    with tempfile.TemporaryFile() as said:
        began_s = time.perf_counter()
        feeder = None
        if order["gunzip"] is not None:
            feeder = subprocess.Popen(["gzip", "-dc", order["gunzip"]], stdout=subprocess.PIPE)
        stdin = subprocess.DEVNULL if feeder is None else feeder.stdout
        client = subprocess.Popen(order["argv"], stdin=stdin, stdout=said, stderr=said)
        if feeder is not None and feeder.stdout is not None:
            feeder.stdout.close()
        _, status, usage = os.wait4(client.pid, 0)
        elapsed_s = time.perf_counter() - began_s
        client.returncode = os.waitstatus_to_exitcode(status)
        is_fed = feeder is None or feeder.wait() == 0
        said.seek(0)
        cost = {
            "seconds": elapsed_s,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            # Linux counts in KiB.
            "peak_rss_bytes": usage.ru_maxrss * 1024,
        }
        print(
            json.dumps(
                {
                    "is_fed": is_fed,
                    "status": client.returncode,
                    "said": said.read()[-4000:].decode(errors="replace"),
                    "least_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                    "cost": cost,
                }
            )
        )


if __name__ == "__main__":
    main()
