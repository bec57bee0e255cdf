/*-------------------------------------------------------------------------
 *
 * key.h
 *	  Makes cache keys from the arguments of a query or the columns of a row.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_KEY_H
#define HERALD_KEY_H

#include "postgres.h"

/*
 * The key of one value is its text.  The key of several values is the list of their texts,
 * separated by commas; in each text a comma or backslash is preceded by a backslash, and \N
 * stands for null.  The texts depend neither on the session's settings nor on names of
 * objects; throws for a type for which this is not known.  Equal numbers have the same text,
 * and so do equal values of char(n).  Returns NULL for a single null.  In the current memory
 * context.
 */
extern text *herald_key_make(int count, const Datum *values, const bool *nulls, const Oid *types);

/* Throws if herald_key_make() refuses values of this type. */
extern void herald_key_check_type(Oid type);

#endif							/* HERALD_KEY_H */
