/*-------------------------------------------------------------------------
 *
 * involvement.h
 *	  Does what this backend does concern pg_herald?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVOLVEMENT_H
#define HERALD_INVOLVEMENT_H

#include "postgres.h"

/*
 * Most transactions neither notify nor listen, in backends that do not listen
 * either, and are to cost nothing: at their statements and ends this is all that is
 * looked at.  Set by every function that gives the end of the transaction
 * something to do; transaction.c clears it.
 */
extern bool herald_is_involved;

/*
 * Have our callbacks before the commit, or before PREPARE TRANSACTION, run?  What
 * other modules' callbacks do after them comes too late for them.
 */
extern bool herald_is_committing;

#endif							/* HERALD_INVOLVEMENT_H */
