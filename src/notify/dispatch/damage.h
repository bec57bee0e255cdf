/*-------------------------------------------------------------------------
 *
 * damage.h
 *	  Switches off a damaged notification queue.
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
 * A dispatcher has found damage at this position: switch the queue off, and notify all
 * listeners.  With no lock held.  Never fails.
 */
extern void herald_damage_found(HeraldPosition position);

/*
 * Notify every listener that it may have missed messages.  Called again when a batch is
 * committed that was reserved before the damage was found.  Never fails.
 */
extern void herald_damage_tell(void);

#endif							/* HERALD_DAMAGE_H */
