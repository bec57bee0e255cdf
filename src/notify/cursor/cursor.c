/*-------------------------------------------------------------------------
 *
 * cursor.c
 *	  Where a reader finds the notifications that it has not received yet: in the WAL, in the queue, or in both.
 *
 * Only this file composes positions.  A position has two parts.  The place belongs to the queue of one run of one
 * server, and is meaningless elsewhere.  The receipt is in terms of the WAL, which a primary and its standbys share
 * (core/receipt.c).
 *
 * While a reader reads from the WAL, its position keeps the old place in the queue.  At the end of the first
 * transaction from the WAL, `moved` is set in the position: from then on a client can resume only with the receipt,
 * even on this server.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/shared.h"
#include "notify/cursor/cursor.h"
#include "notify/dispatch/dispatch.h"
#include "notify/position/anchor.h"
#include "notify/position/bypass.h"
#include "notify/position/last_logged.h"
#include "notify/relay/relay.h"
#include "notify/settings/channel_settings.h"

static HeraldReceipt receipt_of_server(HeraldPosition *settled);
static void advance(HeraldReceipt *receipt, HeraldPosition place);
static bool are_logged(const HeraldCursorRequest *request);
static HeraldGone open_queue(HeraldCursor *cursor, const HeraldCursorRequest *request, bool all_logged);
static bool may_be_in_wal(HeraldGone gone);
static HeraldGone open_wal(HeraldCursor *cursor, const HeraldCursorRequest *request);
static HeraldGone join_past(HeraldCursor *cursor, const HeraldCursorRequest *request);
static HeraldGone read_past(HeraldCursor *cursor, const HeraldCursorRequest *request);


void
herald_cursor_prepare(void)
{
	/*
	 * Until the relay has met evidence that the primary runs pg_herald, a
	 * standby's queue may lack notifications.  So wait before a position is
	 * composed from a place in this queue.
	 */
	herald_relay_await_evidence();
	if (herald_channel_settings_any())
		herald_anchor_ensure();
}

void
herald_cursor_begin(HeraldCursor *cursor)
{
	memset(cursor, 0, sizeof(*cursor));
	cursor->at.run = herald_control->server_run;

	/*
	 * Load the number of bypasses before the place, so that a transaction
	 * that is counted between the two loads is treated as not received.
	 */
	cursor->at.bypasses = herald_bypass_count();
	cursor->at.wal = receipt_of_server(&cursor->at.place);
}

/*
 * Set *settled to the place below which all batches are settled now, and return the receipt of a client that has
 * received everything before this place.  While the relay is active, load the relay's place before `settled`.  All
 * batches below the relay's place are finished, so herald_dispatch_catch_up() can settle the queue up to the relay's
 * place.  If the queue is still not settled up to the relay's place, the receipt claims nothing.
 */
static HeraldReceipt
receipt_of_server(HeraldPosition *settled)
{
	HeraldReceipt receipt = {0};
	HeraldReached reached;

	if (herald_relay_is_active() && herald_relay_reached(&reached))
	{
		herald_dispatch_attach();
		herald_dispatch_catch_up(reached.place);
		*settled = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
		if (reached.place <= *settled)
			herald_receipt_relay(&receipt, reached.from, reached.last);
		return receipt;
	}
	herald_receipt_witness(&receipt, herald_last_logged());
	*settled = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
	advance(&receipt, *settled);
	return receipt;
}

/*
 * Extend the receipt of a client that has received everything before `place`.  [X1] Let the receipt claim everything
 * up to the latest anchor whose place is not after `place`.  If there is no such anchor, let the receipt claim
 * everything up to the relay's progress, unless the relay's place is after `place`.
 *
 * [X3] A reader of the WAL begins at the receipt's `from`, and must find the message of the witness.  So if this run
 * has committed the witness, the place of the anchor `from` must not be after the place of the witness.
 */
static void
advance(HeraldReceipt *receipt, HeraldPosition place)
{
	HeraldWalAnchor anchor;
	HeraldReached reached;

	if (herald_anchor_latest(place, &anchor))
	{
		HeraldWalAnchor from = anchor;

		if (receipt->furthest.end > anchor.wal && receipt->furthest.run == herald_control->server_run)
			(void) herald_anchor_latest(Min(place, receipt->furthest.place), &from);
		herald_receipt_reach(receipt, from, anchor);
	}
	else if (herald_relay_reached(&reached) && reached.place <= place)
		herald_receipt_relay(receipt, reached.from, reached.last);
}

HeraldGone
herald_cursor_open(HeraldCursor *cursor, const HeraldCursorRequest *request, bool *in_past)
{
	bool		all_logged = are_logged(request);
	HeraldGone	gone;

	*in_past = false;
	if (herald_shared_is_damaged())
		return herald_gone(HERALD_GONE_DAMAGED);
	if (!herald_relay_await_visible())
		return herald_gone(HERALD_GONE_RELAY);
	gone = request->queue_has_lost ? herald_gone(HERALD_GONE_BY_SIZE) : open_queue(cursor, request, all_logged);
	if (!all_logged || !may_be_in_wal(gone))
		return gone;
	*in_past = true;
	return open_wal(cursor, request);
}

static bool
are_logged(const HeraldCursorRequest *request)
{
	for (int i = 0; i < request->channels_used; i++)
	{
		if (!herald_channel_is_logged(request->channels[i].name))
			return false;
	}
	return true;
}

/* Begin to read this server's queue at the token's place.  Returns the reason if this is not possible. */
static HeraldGone
open_queue(HeraldCursor *cursor, const HeraldCursorRequest *request, bool all_logged)
{
	const HeraldToken *after = request->after;
	HeraldGone	gone;

	if (!herald_token_is_here(after))
		return herald_gone(HERALD_GONE_RUN);
	if (herald_token_precedes_database(after))
		return herald_gone(HERALD_GONE_DATABASE);
	if (!herald_relay_covers(after->place, all_logged))
		return herald_gone(HERALD_GONE_UNLOGGED);
	gone = request->keep(after->place, after->bypasses, all_logged, request->arg);
	if (herald_is_gone(gone))
		return gone;
	if (request->is_alone)
		cursor->at = *after;
	else
		herald_receipt_go_back(&cursor->at.wal, &after->wal);
	return gone;
}

/* Returns true if the WAL may have the logged notifications that the queue lacks for this reason. */
static bool
may_be_in_wal(HeraldGone gone)
{
	switch (gone.kind)
	{
		case HERALD_GONE_RUN:
		case HERALD_GONE_UNLOGGED:
		case HERALD_GONE_PAST_QUEUE:
		case HERALD_GONE_BY_SIZE:
		case HERALD_GONE_FOR_ROOM:
			return true;
		case HERALD_GONE_NOTHING:
		case HERALD_GONE_DATABASE:
		case HERALD_GONE_WAL:
		case HERALD_GONE_RELAY:
		case HERALD_GONE_HISTORY:
		case HERALD_GONE_DAMAGED:
			break;
	}
	return false;
}

/*
 * Let the cursor read the WAL up to a cut, and then the queue from the cut on.  All channels that use the same source
 * (cursor->past) begin after the same token, so their notifications come in one order.  If settings have changed since
 * the cut, a further channel cannot use the source: the channel may have become logged only after the source had read
 * the WAL.
 */
static HeraldGone
open_wal(HeraldCursor *cursor, const HeraldCursorRequest *request)
{
	HeraldGone	gone;

	herald_cursor_prepare();
	if (cursor->past != NULL)
		gone = join_past(cursor, request);
	else
	{
		gone = read_past(cursor, request);
		if (herald_is_gone(gone))
			herald_cursor_close_past(cursor);
	}
	if (herald_is_gone(gone))
		return gone;
	for (int i = 0; i < request->channels_used; i++)
	{
		if (!herald_wal_source_covers(cursor->past, request->channels[i].name))
			return herald_gone(HERALD_GONE_UNLOGGED);
	}
	return gone;
}

/*
 * Let the request's channels use the source that the cursor already has.  This source has read the WAL for another
 * channel, and has notifications that are not delivered yet.
 */
static HeraldGone
join_past(HeraldCursor *cursor, const HeraldCursorRequest *request)
{
	const HeraldCut *cut = herald_wal_source_cut(cursor->past);

	if (!herald_wal_source_is_after(cursor->past, request->after))
		return herald_gone_history("this session resumes other channels from another position");
	if (cut->settings != herald_channel_settings_version())
		return herald_gone(HERALD_GONE_UNLOGGED);
	return request->keep(cut->place, cut->bypasses, true, request->arg);
}

static HeraldGone
read_past(HeraldCursor *cursor, const HeraldCursorRequest *request)
{
	MemoryContext memory = request->outlives_transaction ? TopMemoryContext : CurrentMemoryContext;
	HeraldCut	cut;
	HeraldGone	gone = herald_cut_make(&request->after->wal, &cut);

	if (herald_is_gone(gone))
		return gone;
	gone = request->keep(cut.place, cut.bypasses, true, request->arg);
	if (herald_is_gone(gone))
		return gone;
	cursor->in_past = *request->after;
	cursor->cut = cut.place;
	cursor->past = herald_wal_source_open(memory, request->outlives_transaction);
	gone = herald_wal_source_read(cursor->past, request->after, &cut, request->wants, request->wanted_max,
								  &cursor->after_past);
	if (herald_is_gone(gone))
		return gone;
	advance(&cursor->after_past, cut.place);
	if (request->is_alone)
	{
		cursor->at.run = herald_control->server_run;
		cursor->at.place = cut.place;
		cursor->at.bypasses = cut.bypasses;
		cursor->at.moved = false;
	}
	return gone;
}

bool
herald_cursor_next_past(HeraldCursor *cursor, HeraldPast *past)
{
	if (cursor->past == NULL)
		return false;
	if (herald_wal_source_next(cursor->past, past))
	{
		if (past->entry == NULL)
		{
			cursor->in_past.moved = true;
			cursor->in_past.wal = herald_wal_source_receipt(cursor->past);
		}
		return true;
	}

	/*
	 * On the resumed channels, the reader has received everything before the
	 * cut.  On its other channels, the reader receives everything before the
	 * cut from the queue before herald_cursor_position() is called again.  So
	 * `after_past` is then right for all channels.
	 */
	cursor->at.wal = cursor->after_past;
	herald_cursor_close_past(cursor);
	return false;
}

void
herald_cursor_close_past(HeraldCursor *cursor)
{
	HeraldWalSource *past = cursor->past;

	cursor->past = NULL;
	if (past != NULL)
		herald_wal_source_close(past);
}

void
herald_cursor_receive(HeraldCursor *cursor, HeraldCommitId commit)
{
	herald_receipt_receive(&cursor->at.wal, commit, herald_control->server_run);
}

HeraldToken
herald_cursor_position(HeraldCursor *cursor)
{
	if (cursor->past != NULL)
		return cursor->in_past;
	advance(&cursor->at.wal, cursor->at.place);
	return cursor->at;
}

HeraldToken
herald_cursor_no_position(void)
{
	HeraldToken none = {.moved = true};

	return none;
}
