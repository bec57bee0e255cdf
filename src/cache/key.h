/*-------------------------------------------------------------------------
 *
 * key.h
 *	  Keys made of several values.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_KEY_H
#define HERALD_KEY_H

#include "postgres.h"

/*
 * The key of one value is its text; that of several are their texts with commas
 * between, in which a comma or backslash has a backslash before it, and \N
 * stands for null.  The texts do not depend on the session's settings, nor on
 * the names of objects: throws for a type of which that is not known.  NULL for
 * a single null.  In the current memory context.
 */
extern text *herald_key_make(int count, const Datum *values, const bool *nulls, const Oid *types);

#endif							/* HERALD_KEY_H */
