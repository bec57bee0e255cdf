/*-------------------------------------------------------------------------
 *
 * damage.h
 *	  A damaged notification queue is switched off.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_DAMAGE_H
#define HERALD_DAMAGE_H

#include "postgres.h"

#include "core/log_layout.h"
#include "shared.h"

/*
 * Is the queue switched off?  [D5] Sequentially consistent: a listener asks after
 * it has changed its word; pairs with herald_damage_found().
 */
static inline bool
herald_damage_is_known(void)
{
	return unlikely(atomic_load(&herald_control->is_damaged) != 0);
}

/*
 * A dispatcher has found damage at this position: switch the queue off, and
 * tell all listeners.  With no lock held.  Never fails.
 */
extern void herald_damage_found(HeraldPosition position);

/*
 * Have every listener told that it has missed something.  Again, if a batch is
 * committed that was reserved before the damage was found.  Never fails.
 */
extern void herald_damage_tell(void);

#endif							/* HERALD_DAMAGE_H */
