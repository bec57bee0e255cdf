/*-------------------------------------------------------------------------
 *
 * key.h
 *	  Keys, made of the arguments of a query or the columns of a row.
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
 * the names of objects: throws for a type of which that is not known.  Equal
 * numbers have one text, and so have equal values of char(n).  NULL for a single
 * null.  In the current memory context.
 */
extern text *herald_key_make(int count, const Datum *values, const bool *nulls, const Oid *types);

/* Throws if herald_key_make() refuses values of this type. */
extern void herald_key_check_type(Oid type);

#endif							/* HERALD_KEY_H */
