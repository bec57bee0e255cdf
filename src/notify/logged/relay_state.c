/*-------------------------------------------------------------------------
 *
 * relay_state.c
 *	  How far the relay of a standby has come, in shared memory.
 *
 * Written by the relay (workers/relay.c), which may be ended and started again: then it goes on from here.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdatomic.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/spin.h"

#include "base/shared.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/logged/relay_state.h"

/* Each wait looks again after this time, in case that it was not woken. */
#define LOOK_AGAIN_MS	100

typedef enum RelayStage
{
	RELAY_NOT_BEGUN,			/* also on a server that was never a standby */
	RELAY_ACTIVE,
	RELAY_FINISHED
} RelayStage;

struct HeraldRelay
{
	_Atomic int stage;			/* RelayStage */
	ConditionVariable changed;	/* the stage */
	slock_t		lock;			/* for the rest */
	XLogRecPtr	read_from;
	HeraldReached reached;
	HeraldRelayFigures figures;
};

static void move_to(RelayStage stage);
static bool has_not_begun(void);
static bool waits_for_end(void);
static void wait_while(bool (*condition) (void));


Size
herald_relay_shared_size(void)
{
	return sizeof(HeraldRelay);
}

void
herald_relay_shared_init(void)
{
	memset((void *) herald_relay, 0, sizeof(HeraldRelay));
	SpinLockInit(&herald_relay->lock);
	ConditionVariableInit(&herald_relay->changed);
}

void
herald_relay_begin(const HeraldReached *reached, XLogRecPtr read_from)
{
	herald_relay_publish(reached, read_from);
	move_to(RELAY_ACTIVE);
}

void
herald_relay_publish(const HeraldReached *reached, XLogRecPtr read_from)
{
	SpinLockAcquire(&herald_relay->lock);
	herald_relay->reached = *reached;
	herald_relay->read_from = read_from;
	SpinLockRelease(&herald_relay->lock);
}

void
herald_relay_publish_figures(const HeraldRelayFigures *figures)
{
	SpinLockAcquire(&herald_relay->lock);
	herald_relay->figures = *figures;
	SpinLockRelease(&herald_relay->lock);
}

void
herald_relay_finish(void)
{
	move_to(RELAY_FINISHED);
}

XLogRecPtr
herald_relay_read_from(void)
{
	XLogRecPtr	result;

	SpinLockAcquire(&herald_relay->lock);
	result = herald_relay->read_from;
	SpinLockRelease(&herald_relay->lock);
	return result;
}

bool
herald_relay_reached(HeraldReached *reached)
{
	SpinLockAcquire(&herald_relay->lock);
	*reached = herald_relay->reached;
	SpinLockRelease(&herald_relay->lock);
	return atomic_load(&herald_relay->stage) != RELAY_NOT_BEGUN;
}

void
herald_relay_figures(HeraldRelayFigures *figures)
{
	SpinLockAcquire(&herald_relay->lock);
	*figures = herald_relay->figures;
	SpinLockRelease(&herald_relay->lock);
}

bool
herald_relay_is_active(void)
{
	return atomic_load(&herald_relay->stage) == RELAY_ACTIVE;
}

void
herald_relay_await_end(void)
{
	if (unlikely(waits_for_end()))
		wait_while(waits_for_end);
}

void
herald_relay_await_begin(void)
{
	if (unlikely(has_not_begun()))
		wait_while(has_not_begun);
}

static void
move_to(RelayStage stage)
{
	atomic_store(&herald_relay->stage, stage);
	herald_wait_tell(&herald_relay->changed);
}

static bool
has_not_begun(void)
{
	return atomic_load(&herald_relay->stage) == RELAY_NOT_BEGUN && RecoveryInProgress();
}

/* In recovery no session sends. */
static bool
waits_for_end(void)
{
	return herald_relay_is_active() && !RecoveryInProgress();
}

static void
wait_while(bool (*condition) (void))
{
	for (;;)
	{
		herald_wait_prepare(HERALD_WAIT_RELAY, &herald_relay->changed);
		if (!condition())
			break;
		HERALD_STOP_POINT("await-relay");
		CHECK_FOR_INTERRUPTS();
		herald_wait_sleep(HERALD_WAIT_RELAY, LOOK_AGAIN_MS);
	}
	herald_wait_end();
}
