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

#include "base/shared.h"
#include "core/queue_layout.h"

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
