/*-------------------------------------------------------------------------
 *
 * wake_watchdog.c
 *	  Wakes the watchdog.
 *
 * The watchdog sleeps while there is no work for it.  A process that leaves work to it wakes it;
 * while the watchdog is awake, that costs one load.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/latch.h"

#include "base/compat.h"
#include "base/shared.h"
#include "base/wake_watchdog.h"

static bool set_latch(void);


bool
herald_watchdog_runs(void)
{
	return atomic_load_explicit(&herald_control->watchdog, memory_order_relaxed) >= 0;
}

int
herald_watchdog_pid(void)
{
	int32		number = atomic_load_explicit(&herald_control->watchdog, memory_order_relaxed);

	return number < 0 ? 0 : herald_proc_pid(number);
}

bool
herald_wake_watchdog(void)
{
	atomic_store_explicit(&herald_control->watchdog_sleeps, 0, memory_order_relaxed);
	return set_latch();
}

void
herald_wake_watchdog_if_asleep(void)
{
	/* [D4] pairs with the exchange in herald_watchdog_main() */
	if (atomic_load_explicit(&herald_control->watchdog_sleeps, memory_order_seq_cst) != 0 &&
		atomic_exchange_explicit(&herald_control->watchdog_sleeps, 0, memory_order_seq_cst) != 0)
		(void) set_latch();
}

/* False: there is no watchdog. */
static bool
set_latch(void)
{
	int32		number = atomic_load_explicit(&herald_control->watchdog, memory_order_seq_cst);

	if (number < 0)
		return false;
	SetLatch(herald_proc_latch(number));
	return true;
}
