/*-------------------------------------------------------------------------
 *
 * flow.h
 *	  Flow control: how far are the listeners that make progress behind?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_FLOW_H
#define HERALD_FLOW_H

#include "wakeup.h"

/*
 * Bytes that have been dispatched but not been read by a listener which is
 * making progress.  Exact only where it exceeds `enough`: below that an older,
 * cheaper figure will do.
 */
extern uint64_t herald_flow_backlog(HeraldLog *log, HeraldWakeup *wakeup, uint64_t enough);

#endif							/* HERALD_FLOW_H */
