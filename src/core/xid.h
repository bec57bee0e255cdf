/*-------------------------------------------------------------------------
 *
 * xid.h
 *	  The order of transaction ids, which wrap around.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_XID_H
#define HERALD_XID_H

#include <stdbool.h>
#include <stdint.h>

/* Does transaction id a precede b?  Neither is one of the special ids below 3. */
static inline bool
herald_xid_precedes(uint32_t a, uint32_t b)
{
	return (int32_t) (a - b) < 0;
}

#endif							/* HERALD_XID_H */
