/*-------------------------------------------------------------------------
 *
 * involvement.h
 *	  Does this backend's transaction concern pg_herald?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVOLVEMENT_H
#define HERALD_INVOLVEMENT_H

#include "postgres.h"

/*
 * Most transactions neither notify nor listen, in backends that do not listen, and must cost
 * nothing: at their statements and ends only this flag is checked.  Set by every function that
 * leaves work for the end of the transaction; transaction.c clears it.
 */
extern bool herald_is_involved;

/*
 * Have our callbacks before the commit, or before PREPARE TRANSACTION, run?  Work that other
 * modules' callbacks add after them comes too late.
 */
extern bool herald_is_committing;

#endif							/* HERALD_INVOLVEMENT_H */
