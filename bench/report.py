"""Turns rounds of measurements into medians, spreads and ratios, and prints the table."""

from statistics import median

from bench.scenarios import Scenario

UNDELIVERED = "NOT ALL DELIVERED"


def summarize(scenario: Scenario, rounds: list[dict[str, dict]]) -> dict:
    """One summary of a scenario.

    rounds      per round, the measurement of each case by the case's name; {"error": ...} in
                place of one that failed

    The ratio is the median of the rounds' ratios: two measurements of one round lie close
    together in time, so what slows the machine for a while slows both.
    """
    cases = {}
    for case in scenario.cases:
        measured = [one[case.name] for one in rounds if "value" in one.get(case.name, {})]
        values = [one["value"] for one in measured]
        errors = [one[case.name]["error"] for one in rounds if "error" in one.get(case.name, {})]
        cases[case.name] = {
            "median": median(values) if values else None,
            "min": min(values, default=None),
            "max": max(values, default=None),
            "deliveries_per_s": _median_of(measured, "deliveries_per_s"),
            "drain_ms": _median_of(measured, "drain_ms"),
            "delivered": all(one.get("delivered", True) for one in measured),
            "errors": errors,
        }
    baseline, subject = scenario.baseline.name, scenario.subject.name
    ratios = [one[subject]["value"] / one[baseline]["value"] for one in rounds
              if "value" in one.get(subject, {}) and "value" in one.get(baseline, {})]
    ratio = median(ratios) if ratios else None
    whole = not any(cases[name]["errors"] or not cases[name]["delivered"] for name in (subject, baseline))
    return {
        "scenario": scenario.name,
        "cases": cases,
        "ratio": ratio,
        "ratio_min": min(ratios, default=None),
        "ratio_max": max(ratios, default=None),
        "target": str(scenario.target) if scenario.target else None,
        "pass": bool(whole and ratio is not None and (not scenario.target or scenario.target.met(ratio))),
    }


def _median_of(measured: list[dict], key: str) -> float | None:
    values = [one[key] for one in measured if key in one]
    return median(values) if values else None


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def _case_cell(case: dict, unit: str) -> str:
    if case["median"] is None:
        return "failed"
    text = f"{_number(case['median'])} {unit}"
    return text if case["min"] == case["max"] else f"{text} ({_number(case['min'])}..{_number(case['max'])})"


def _ratio_cell(summary: dict) -> str:
    digits = 3 if summary["ratio"] < 2 else 1
    text = f"{summary['ratio']:.{digits}f}"
    if summary["ratio_min"] == summary["ratio_max"]:
        return text
    return f"{text} ({summary['ratio_min']:.{digits}f}..{summary['ratio_max']:.{digits}f})"


def _delivery_cell(case: dict) -> str:
    if case["deliveries_per_s"] is None:
        return "" if case["delivered"] else UNDELIVERED
    if not case["delivered"]:
        return UNDELIVERED
    return f"{_number(case['deliveries_per_s'])}/s, all, drained in {_number(case['drain_ms'])} ms"


def _result_cell(summary: dict) -> str:
    return "FAIL" if not summary["pass"] else "pass" if summary["target"] else "-"


def print_table(scenarios: list[Scenario], summaries: list[dict]) -> None:
    """Prints one line per case: the baseline, the subject with the ratio, then what stands beside."""
    rows = [("scenario", "case", "median (min..max)", "deliveries", "ratio (min..max)", "target", "result")]
    for scenario, summary in zip(scenarios, summaries):
        for case in scenario.cases:
            is_subject = case is scenario.subject
            ratio = ""
            if is_subject and summary["ratio"] is not None:
                ratio = _ratio_cell(summary)
            figures = summary["cases"][case.name]
            rows.append((
                scenario.name if case is scenario.baseline else "",
                case.name,
                _case_cell(figures, scenario.unit),
                _delivery_cell(figures),
                ratio,
                summary["target"] or "-" if is_subject else "",
                _result_cell(summary) if is_subject else "",
            ))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    for summary in summaries:
        for name, case in summary["cases"].items():
            for error in case["errors"]:
                print(f"{summary['scenario']}, {name}: {error}")


def progress_line(scenario: Scenario, case_name: str, measurement: dict) -> str:
    """One measurement, as it is made."""
    if "error" in measurement:
        return f"{scenario.name}, {case_name}: failed: {measurement['error']}"
    text = f"{scenario.name}, {case_name}: {_number(measurement['value'])} {scenario.unit}"
    if "deliveries_per_s" in measurement:
        text += f", {_number(measurement['deliveries_per_s'])} deliveries/s"
    if not measurement.get("delivered", True):
        text += f", {UNDELIVERED}"
    return text
