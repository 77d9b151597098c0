"""One large .gz file over TLS, with and without 20 ms of added round trip.

Both go through a relay, which adds 10 ms each way or nothing and limits no bandwidth, and end in a TLS front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trustme
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks import ways
from benchmarks.data import principals
from benchmarks.record import save, summarize
from benchmarks.relay import helper, relay
from benchmarks.rounds import interleave
from benchmarks.server import Target, bench_server, make_open_dir
from penstock_lab.datasets.people import expected_rows

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options

_DELAY_MS = 10


def run(options: Options) -> None:
    """Run it and write the results."""
    path = principals(options.data, options.scale)
    rows = expected_rows("title.principals", options.scale)
    root, pem = _make_certificates(options.data)
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        # The front is not the server, so SCRAM cannot bind to its certificate.
        tls = make_conninfo(
            server.tcp_conninfo(), sslmode="verify-full", sslrootcert=str(root), channel_binding="disable"
        )
        port = str(conninfo_to_dict(tls)["port"])
        with (
            helper("benchmarks.tls_front", port, str(pem)) as front,
            relay(front, delay_ms=0) as near,
            relay(front, delay_ms=_DELAY_MS) as far,
        ):
            variants = [
                ways.penstock(make_conninfo(tls, port=at), path, setting=setting)
                for at, setting in ((near, "no delay"), (far, f"{2 * _DELAY_MS} ms added"))
            ]
            found = interleave(variants, target, rows=rows, runs=options.runs)
        results = {name: summarize(costs) for name, costs in found.items()}
        first_s = results[variants[0].name]["seconds"]["median"]
        table: list[tuple[str, ...]] = [("way", "median s", "lowest", "highest", "throughput")]
        for name, result in results.items():
            seconds = result["seconds"]
            share = first_s / seconds["median"]
            table.append((name, *(f"{seconds[key]:.2f}" for key in seconds), f"{share:.3f}"))
        save(
            "latency_tls",
            options=options,
            postgresql=target.settings(),
            settings={"added_round_trip_ms": 2 * _DELAY_MS, "file_bytes": path.stat().st_size, "rows": rows},
            results=results,
            table=table,
            notes=[
                "TLS (sslmode=verify-full) ends in a front, because the embedded server is built without.",
                "Front and relay take part of the same cores in both ways.",
            ],
        )


def _make_certificates(data: Path) -> tuple[Path, Path]:
    """Write an authority, and a certificate for 127.0.0.1 with its key; return both files."""
    folder = data / "tls"
    make_open_dir(data)
    make_open_dir(folder)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    root, pem = folder / "root.pem", folder / "front.pem"
    authority.cert_pem.write_to_path(str(root))
    pem.unlink(missing_ok=True)
    pem.touch(mode=0o600)
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    return root, pem
