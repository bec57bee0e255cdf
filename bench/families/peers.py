"""pg_herald beside Redis and NATS: the same topologies, published and counted by one client.

The peers do less: their messages are not transactional. As with NOTIFY, a client that is not
connected does not get a message later (no Redis streams, no JetStream).
"""

from functools import partial

from bench.family import SETTINGS, Case, Context, Family, Plot, Point, Table
from bench.measuring import cpu
from bench.measuring.measure import DBNAME
from bench.measuring.peer_servers import SUBSCRIBER_BUFFER_MB, Nats, Peer, Redis
from bench.measuring.peers import publish
from bench.reporting import figures, plots
from harness.cluster import Cluster
from harness.ports import LOOPBACK, free_port

TOPOLOGIES = ((1, 1), (100, 1), (1, 100), (100, 100), (8, 300))
QUICK_TOPOLOGIES = ((1, 100), (100, 100))
TCP_TOPOLOGIES = TOPOLOGIES[:4]  # without 300 connections, which take longest to open and show nothing new
DEPTHS = {"request and reply": 1, "100 at a time": 100}
PEERS = {"redis": Redis, "nats": Nats}
TRANSPORTS = {"tcp": ("herald", "redis", "nats"), "unix": ("stock", "herald", "redis")}
QUICK_TRANSPORTS = {"tcp": TRANSPORTS["tcp"]}
LIMITS = {"SELECT 1": "select", "NOTIFY": "postgres"}  # the protocols of bench/clients/pubsub
HEADINGS = {"unix": "unix socket", "tcp": "TCP, loopback"}

RATES_NOTE = (
    "All on one channel, every subscriber gets every message, the payload is empty. Sustained: the time "
    "counts until the last subscriber has the last message, and none is missing. A NOTIFY is a transaction "
    "of its own, also 100 at a time; a message of Redis or NATS is in none. NATS answers no publish: a PING "
    f"follows each, or each 100. A subscriber's output may pile up to {SUBSCRIBER_BUFFER_MB} MB before the "
    "server cuts it off (client-output-buffer-limit, max_pending); otherwise Redis and NATS are as they are "
    "by default.")


class Servers:
    """The servers of this family, started on first use, and stopped when the family ends."""

    def __init__(self) -> None:
        self._started: dict[str, Peer | Cluster] = {}

    def peer(self, context: Context, name: str) -> Peer:
        """Redis or NATS; Skipped if it is not installed."""
        if name not in self._started:
            self._started[name] = context.stack.enter_context(PEERS[name]())
            context.stack.callback(self._started.pop, name)
        return self._started[name]

    def herald_tcp(self, context: Context) -> Cluster:
        """A further cluster that listens on a port of the loopback interface."""
        if "herald" not in self._started:
            settings = SETTINGS | context.settings | {"listen_addresses": LOOPBACK}
            cluster = context.stack.enter_context(Cluster(preload=True, settings=settings, port=free_port()))
            cluster.psql(f"CREATE DATABASE {DBNAME}")
            cluster.create_herald(DBNAME)
            self._started["herald"] = cluster
            context.stack.callback(self._started.pop, "herald")
        return self._started["herald"]


def _measure(context: Context, servers: Servers, system: str, transport: str, **load) -> dict:
    if system in PEERS:
        peer = servers.peer(context, system)
        address = str(peer.unix_socket) if transport == "unix" else f"{LOOPBACK}:{peer.port}"
        return publish(system, address, context.seconds, pids=peer.pids, **load) | {"version": peer.version}
    if transport == "unix":
        return _measure_unix(context, system, "postgres", **load)
    cluster = servers.herald_tcp(context)
    return publish("postgres", f"{LOOPBACK}:{cluster.port}", context.seconds,
                   pids=partial(_backends, cluster), **load)


def _measure_unix(context: Context, system: str, protocol: str, **load) -> dict:
    cluster = context.clusters[system]
    return publish(protocol, f"{cluster.socket_folder}/.s.PGSQL.{cluster.port}", context.seconds,
                   pids=partial(_backends, cluster), **load)


def _backends(cluster: Cluster) -> list[int]:
    return cpu.server_processes(cluster.postmaster_pid())


def points(quick: bool) -> list[Point]:
    """Every topology over TCP and over a unix socket, with requests one by one and 100 at a time; then the limits."""
    servers = Servers()
    found = []
    for transport, systems in (QUICK_TRANSPORTS if quick else TRANSPORTS).items():
        topologies = QUICK_TOPOLOGIES if quick else TCP_TOPOLOGIES if transport == "tcp" else TOPOLOGIES
        for publishers, subscribers in topologies:
            for mode, depth in DEPTHS.items():
                cases = tuple(
                    Case(system, partial(_measure, servers=servers, system=system, transport=transport,
                                         publishers=publishers, subscribers=subscribers, depth=depth))
                    for system in systems if system != "stock" or depth == 1)
                found.append(Point({"publishers": publishers, "subscribers": subscribers, "mode": mode,
                                    "transport": transport}, cases))
    return found + [_limit(publishers, mode) for publishers in (1, 100) for mode in DEPTHS if not quick]


def _limit(publishers: int, mode: str) -> Point:
    """The rate of `publishers` connections without subscribers."""
    return Point({"publishers": publishers, "mode": mode, "nobody hears": True}, tuple(
        Case(name, partial(_measure_unix, system="herald", protocol=protocol, publishers=publishers,
                           subscribers=0, depth=DEPTHS[mode])) for name, protocol in LIMITS.items()))


def _topology(point: dict) -> str:
    return f"{point['publishers']} → {point['subscribers']}"


def _rates(lines: list[dict], transport: str) -> Table:
    systems = TRANSPORTS[transport]
    others = [system for system in systems if system != "herald"]
    rows = []
    for point, rates in figures.group(figures.select(lines, transport=transport), "publishes_per_s"):
        rows.append((_topology(point), point["mode"],
                     *(figures.with_spread(rates.get(system, [])) for system in systems),
                     *(figures.ratio(figures.ratios(lines, "publishes_per_s", "herald", system, **point))
                       for system in others)))
    return Table(f"Publishes per second, {HEADINGS[transport]}", (
        "publishers → subscribers", "requests", *systems, *(f"herald / {system}" for system in others)),
        rows, RATES_NOTE)


def _limits(lines: list[dict]) -> Table:
    rows = [(point["publishers"], point["mode"],
             *(figures.with_spread(rates.get(name, [])) for name in LIMITS),
             *(figures.middle(figures.values(lines, "cpu_server_us_per_publish", name, **point))
               for name in LIMITS))
            for point, rates in figures.group(lines, "publishes_per_s")]
    return Table("The limit: what the connections that publish make without subscribers", (
        "publishers", "requests", *(f"{name}, per second" for name in LIMITS),
        *(f"{name}, server's CPU, µs" for name in LIMITS)), rows,
        "By the same client, over a unix socket, with pg_herald.")


def _costs(lines: list[dict]) -> Table:
    rows = []
    for point in figures.points(lines):
        for system in figures.cases(figures.select(lines, **point)):
            def middle(figure: str) -> float | None:
                return figures.middle(figures.values(lines, figure, system, **point))

            shares = (figures.percent(middle(figure)) for figure in (
                "cpu_client_share", "publishers_busy_share", "subscribers_busy_share"))
            rows.append((_topology(point), point["mode"], point["transport"], system,
                         middle("deliveries_per_s"), middle("cpu_server_us_per_publish"), *shares))
    return Table("Where the CPU time goes", (
        "publishers → subscribers", "requests", "transport", "system", "deliveries/s",
        "server's CPU, µs per publish", "client's share of the CPU", "publishing thread",
        "subscribing thread"), rows,
        "One client of two threads serves them all. Where a thread is busy for near 100 % of the time, it is "
        "the limit and not the server.")


def _guarantees(lines: list[dict]) -> Table:
    rows = [("stock and herald", "yes: sent when the transaction commits, and only then", "no", "no")]
    for system in PEERS:
        versions = figures.values(lines, "version", system)
        if versions:
            rows.append((f"{system} {versions[0]}", "no: sent at once", "no", "no"))
    return Table("What is compared", (
        "system", "transactional", "durable", "kept for subscribers that are away"), rows,
        "PUBLISH of Redis and core NATS, not their streams. With neither, nor with NOTIFY, does a message "
        "outlive a crash of the server, or wait for a client that is not connected.")


def tables(lines: list[dict]) -> list[Table]:
    """Rates for each transport, limits, costs, and the guarantees of each system."""
    compared = [line for line in lines if "transport" in line["point"]]
    limits = [line for line in lines if "nobody hears" in line["point"]]
    found = [_rates(lines, transport) for transport in TRANSPORTS
             if figures.select(lines, transport=transport)]
    if limits:
        found.append(_limits(limits))
    return [*found, _costs(compared), _guarantees(lines)]


def _draw(axes, lines: list[dict]) -> None:
    named = [line | {"point": line["point"] | {"topology": _topology(line["point"])}} for line in lines]
    plots.marks_by_case(axes, named, "topology", "publishes_per_s",
                        xlabel="publishers → subscribers, one channel", ylabel="publishes per second")


def plots_of(lines: list[dict]) -> list[Plot]:
    """A plot for each transport and request mode."""
    return [Plot(f"peers_{transport}_{'single' if depth == 1 else 'pipelined'}",
                 f"{HEADINGS[transport]}, {mode}", partial(_draw, lines=chosen))
            for transport in TRANSPORTS for mode, depth in DEPTHS.items()
            for chosen in [figures.select(lines, transport=transport, mode=mode)] if chosen]


FAMILY = Family(
    name="peers", title="Beside Redis and NATS",
    question="How does pg_herald compare with servers that only pass messages on, without a transaction?",
    points=points, tables=tables, plots=plots_of, seconds=0.3, quick_seconds=0.3)
