/*-------------------------------------------------------------------------
 *
 * reason_names.h
 *	  Reasons to signal that other modules have registered.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_API_REASONS_H
#define HERALD_API_REASONS_H

#include "postgres.h"

#include "api/pg_herald_api.h"

/* See HeraldApi. */
extern HeraldReason *herald_reason_register(const char *name, HeraldReasonHandler handler, void *arg);
extern bool herald_reason_send(HeraldReason *reason, int pid);

/*
 * Start to handle the reasons that were registered in the postmaster.  At the end of a
 * backend's first transaction, which is the one of its start.
 */
extern void herald_reason_names_attend(void);

/* Shared memory, for memory.c. */
extern Size herald_reason_names_shared_size(void);
extern void herald_reason_names_shared_init(void);

#endif							/* HERALD_API_REASONS_H */
