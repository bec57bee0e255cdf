/*-------------------------------------------------------------------------
 *
 * server_steps.c
 *	  How long the server takes for this transaction's LISTENs and UNLISTENs.
 *
 * Also for those in parts that were rolled back: one step for each, and for UNLISTEN * the
 * largest size that its table of channels ever had, since the table does not shrink.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "notify/listener/server_steps.h"

/*
 * The server (19) takes up to some microseconds for each step, and many sessions may do this
 * at once.
 */
#define STEPS_MAX		100

static uint64 steps;
static uint64 listens;
static uint64 channels_most;


void
herald_server_steps_add(bool is_listen, uint64 channels)
{
	listens += is_listen;
	channels_most = Max(channels_most, listens + channels);
	steps++;
}

void
herald_server_steps_add_all(uint64 channels)
{
	channels_most = Max(channels_most, listens + channels);
	steps += channels_most + 1;
}

bool
herald_server_steps_take_long(void)
{
	return steps > STEPS_MAX;
}

void
herald_server_steps_reset(void)
{
	steps = listens = 0;
}
