/*-------------------------------------------------------------------------
 *
 * moderation_rules.h
 *	  Decides whether to wait a moment for more notifications, and for how long; and when
 *	  there are none to wait for.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_MODERATION_RULES_H
#define HERALD_MODERATION_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* One step of waiting. */
#define HERALD_STEP_US		50

/* Facts about a listener's pass, for these decisions. */
typedef struct HeraldPass
{
	uint64_t	since_us;		/* time since the end of the previous pass;
								 * UINT64_MAX: none */
	uint32_t	batches;		/* batches that it has read messages of */
	uint32_t	batches_before; /* `batches` at the last decision */
	uint32_t	lingers;		/* steps of lingering so far */
	bool		several;		/* its messages come from several senders */
} HeraldPass;

/*
 * Over all passes: number of opportunities to linger that are skipped, and that were skipped
 * so far.
 */
typedef struct HeraldRestraint
{
	uint32_t	to_leave_out;
	uint32_t	left_out;
} HeraldRestraint;

/* Is a batch expected within one step, at the rate since the previous pass? */
extern bool herald_moderation_expects(const HeraldPass *pass);

/*
 * After everything has been read: the time to linger before looking for more, in microseconds;
 * 0: do not linger.  waiting: number of listeners that wait for a turn.
 */
extern uint32_t herald_moderation_linger(const HeraldPass *pass, uint32_t waiting,
										 HeraldRestraint *restraint);

/* Note whether lingering brought messages. */
extern void herald_moderation_learn(HeraldRestraint *restraint, bool came);

/*
 * The turn is about to be passed on, `waited_us` after everything was read: wait another step
 * first?  has_grown: the queue has grown since the previous step; expects: this is the first
 * step, and more is expected; k: maximum number of turns.
 */
extern bool herald_moderation_pauses(bool has_grown, bool expects, uint32_t waiting, uint32_t k,
									 uint64_t waited_us);

/* The queue ended with the one batch that the pass has read: is the server at rest? */
extern bool herald_moderation_is_at_rest(const HeraldPass *pass);

#endif							/* HERALD_MODERATION_RULES_H */
