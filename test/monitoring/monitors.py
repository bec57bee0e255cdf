"""Exporters and Prometheus, from Debian's packages, for a cluster."""

import json
import re
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from harness.cluster import Cluster
from harness.ports import LOOPBACK
from harness.prefix import TOP
from harness.private_server import PrivateServer

MONITORING = TOP / "monitoring"
ROLE = "watch"
TIMEOUT_S = 30

PROMETHEUS = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: postgres_exporter
    static_configs: [{{targets: ["{postgres_exporter}"]}}]
  - job_name: sql_exporter
    static_configs: [{{targets: ["{sql_exporter}"]}}]
    metric_relabel_configs:
{relabelling}
"""


def whole(exporter: str) -> str:
    """Its file, with that of pg_herald_cache appended."""
    return "".join((MONITORING / f"{exporter}{part}.yml").read_text(encoding="utf-8") for part in ("", ".cache"))


class Exporter(PrivateServer):
    """A server of metrics."""

    def __init__(self, cluster: Cluster):
        super().__init__()
        self.cluster = cluster

    @property
    def address(self) -> str:
        """The address for Prometheus."""
        return f"{LOOPBACK}:{self.port}"

    def metrics(self) -> str:
        """All metrics, in Prometheus' format."""
        with urlopen(f"http://{self.address}/metrics", timeout=TIMEOUT_S) as answer:
            return answer.read().decode()

    def names(self) -> set[str]:
        """The names of pg_herald's metrics."""
        return set(re.findall(r"^(herald_\w+|sql_herald\w*)\b", self.metrics(), re.MULTILINE))


class PostgresExporter(Exporter):
    """With our queries only."""

    program_name = "prometheus-postgres-exporter"

    def command(self) -> list[str]:
        queries = self.write("queries.yml", whole("postgres_exporter"))
        source = (f"host={self.cluster.socket_folder} port={self.cluster.port} user={ROLE} dbname=postgres"
                  " sslmode=disable")
        return ["env", f"DATA_SOURCE_NAME={source}", self.program, f"--web.listen-address={self.address}",
                f"--extend.query-path={queries}", "--disable-default-metrics", "--disable-settings-metrics"]


class SqlExporter(Exporter):
    """With our file, except for the address and an interval of one second."""

    program_name = "prometheus-sql-exporter"

    def command(self) -> list[str]:
        text = whole("prometheus-sql-exporter")
        url = f"postgres://{ROLE}@/postgres?host={self.cluster.socket_folder}&port={self.cluster.port}&sslmode=disable"
        for pattern, value in ((r"postgres://[^\"]*", url), ("interval: 15s", "interval: 1s")):
            text, changes = re.subn(pattern, value, text)
            assert changes == 1
        return [self.program, f"-config.file={self.write('config.yml', text)}", f"-web.listen-address={self.address}"]


class Prometheus(PrivateServer):
    """Scrapes both exporters each second, and has our alerts, which wait for seconds instead of minutes.

    thousandth  the alerts compare kB instead of MB
    """

    program_name = "prometheus"

    def __init__(self, postgres_exporter: Exporter, sql_exporter: Exporter, thousandth: bool = False):
        super().__init__()
        self.thousandth = thousandth
        self.exporters = {"postgres_exporter": postgres_exporter.address, "sql_exporter": sql_exporter.address}

    def command(self) -> list[str]:
        rules = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
        for pattern, value in ((r"\bfor: \d+[ms]", "for: 2s"), (r"\boffset \d+m", "offset 10s")):
            rules, changes = re.subn(pattern, value, rules)
            assert changes > 0
        if self.thousandth:
            rules = re.sub(r"\b\d{7,}\b", lambda bytes_: str(int(bytes_[0]) // 1024), rules)
        self.write("alerts.yml", rules)
        config = self.write("prometheus.yml", PROMETHEUS.format(relabelling=relabelling(), **self.exporters))
        return [self.program, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}"]

    def _answers(self) -> bool:
        try:
            return super()._answers() and bool(self._get("status/runtimeinfo"))
        except HTTPError:  # it accepts connections before it is ready
            return False

    def query(self, expression: str) -> list[dict]:
        """The current value of an expression: metric and value of each series."""
        return self._get("query", query=expression)["result"]

    def value(self, expression: str) -> float:
        """The value of the only series; 0 if there is none."""
        result = self.query(expression)
        assert len(result) < 2, result
        return float(result[0]["value"][1]) if result else 0.0

    def alerts(self, job: str = "") -> set[str]:
        """The names of the firing alerts, of all jobs or of one."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"]
                if alert["state"] == "firing" and job in (alert["labels"].get("job"), "")}

    def _get(self, what: str, **arguments: str) -> dict:
        url = f"http://{LOOPBACK}:{self.port}/api/v1/{what}?{urlencode(arguments)}"
        with urlopen(url, timeout=TIMEOUT_S) as answer:
            return json.load(answer)["data"]


def relabelling() -> str:
    """The lines for prometheus.yml that prometheus-sql-exporter.yml has in a comment."""
    lines = whole("prometheus-sql-exporter").splitlines()
    return "\n".join("      " + line.removeprefix("#").strip() for line in lines if line.startswith("#     - {"))


def copy_for_promtool(folder: Path) -> Path:
    """Copies the alerts and their tests into one folder; returns the path of the tests."""
    for source in (MONITORING / "alerts.yml", Path(__file__).parent / "alerts_test.yml"):
        (folder / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    return folder / "alerts_test.yml"
