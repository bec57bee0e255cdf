/*-------------------------------------------------------------------------
 *
 * moderation_rules.h
 *	  Is it worth waiting a moment for more notifications, and for how long?
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

/* What a listener knows of its pass when it decides. */
typedef struct HeraldPass
{
	uint64_t	since_us;		/* since the end of the pass before; UINT64_MAX: there was none */
	uint32_t	batches;		/* that it has read messages of */
	uint32_t	batches_before; /* of these, when it decided last */
	uint32_t	lingers;		/* steps of lingering so far */
	bool		several;		/* its messages are of several senders */
} HeraldPass;

/* Over all passes: how often lingering is to be left out, and how often it was. */
typedef struct HeraldRestraint
{
	uint32_t	to_leave_out;
	uint32_t	left_out;
} HeraldRestraint;

/* Is a batch to be expected within a step, at the rate since the pass before? */
extern bool herald_moderation_expects(const HeraldPass *pass);

/*
 * All is read: how long to linger, in microseconds, before looking for more; 0:
 * not at all.  waiting: listeners that wait for a turn.
 */
extern uint32_t herald_moderation_linger(const HeraldPass *pass, uint32_t waiting,
										 HeraldRestraint *restraint);

/* Lingering was worth it, or it was not. */
extern void herald_moderation_learn(HeraldRestraint *restraint, bool came);

/*
 * The turn is about to be passed on, `waited_us` after all was read: is it worth
 * another step first?  has_grown: the queue has grown since the step before;
 * expects: before the first step, more is to be expected; k: turns there may be.
 */
extern bool herald_moderation_pauses(bool has_grown, bool expects, uint32_t waiting, uint32_t k,
									 uint64_t waited_us);

#endif							/* HERALD_MODERATION_RULES_H */
