"""A clock that jumps: what is to come within a time is measured by the monotonic clock."""

import struct
import subprocess
import time
from pathlib import Path

import pytest

from crew import HEARTBEAT_S, NOTICE_DEADLINE_S, Case

pytestmark = pytest.mark.long

HOUR_S = 3600
# Go reads the clock from the kernel's page itself, past the C library, so no library can shift it; and the kernel has no
# namespace for the time of day. Go's time.Now() contains the monotonic clock, by which differences are computed.
CAN_JUMP = ("javascript", "psycopg", "psycopg-async", "asyncpg")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """The library that shifts a program's clock."""
    built = tmp_path_factory.mktemp("clock") / "jumping_clock.so"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(built),
                    str(Path(__file__).with_name("jumping_clock.c"))], check=True)
    return built


@pytest.mark.parametrize("site", ["herald", "stock"])
def test_clock_jumps(crew, request, library, tmp_path, site):
    """Guards: a clock that jumps by an hour, forward or back, neither ends a connection, nor hides that one is mute."""
    if not (wanted := [kit.name for kit in request.getfixturevalue("packages") if kit.name in CAN_JUMP]):
        pytest.skip("no library can shift the clock of a Go program")
    with crew(request.getfixturevalue(site), *wanted) as all_packages:
        def run(case: Case) -> None:
            shift = tmp_path / f"shift of {case.kit.name}"

            def jump(seconds: int) -> None:
                with open(shift, "r+b") as file:
                    file.write(struct.pack("=q", seconds))

            shift.write_bytes(struct.pack("=q", 0))
            case.wire()
            client = case.start({"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(shift)})
            client.wait("listening")
            for seconds in (HOUR_S, -HOUR_S):
                case.order_and_bill()
                jump(seconds)
                end = time.monotonic() + 3 * HEARTBEAT_S
                while time.monotonic() < end:
                    case.order_and_bill()
                assert not client.events("disconnected"), client.events("disconnected")[0].fields
            assert client.events("handled")[-1]["at"] < time.time() - HOUR_S / 2, "its clock has not jumped"
            jump(0)
            case.order_and_bill()  # what arrives last before the silence arrives by this clock
            since, began = client.mark(), time.monotonic()
            case.listening.mute()
            jump(-HOUR_S)
            case.leaves(since, began, NOTICE_DEADLINE_S, "a mute connection")
            client.wait("listening", since)
            case.until_billed()
            case.order_and_bill()
            case.finish()

        all_packages.each(run)
