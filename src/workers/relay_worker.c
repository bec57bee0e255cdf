/*-------------------------------------------------------------------------
 *
 * relay_worker.c
 *	  The background worker that puts logged notifications into a standby's queue.
 *
 * The relay reads the WAL up to the replay position.  At the commit record of a transaction with logged
 * notifications, the relay sends these notifications in a transaction of its own, in the usual way.  So listeners on
 * a standby are served as on a primary, and the changes that the notifications are about are visible on the standby.
 * The queue is in the order of the commit records.
 *
 * The relay notes its progress in shared memory (notify/relay/relay.c).  If the relay ends, because of an error or
 * because it was terminated, the server starts the relay again.  Then the relay continues from the noted progress, so
 * no notification is sent twice or left out.
 *
 * If a part of the WAL can no longer be read, all listeners are notified that they have missed something, and the
 * relay continues at the end of the WAL that can be read now.
 *
 * At a promotion the relay reads to the end of the recovery, and ends for good.  Until then senders wait
 * (herald_relay_await_end()), so that their notifications come after those of the former primary.  On a server that
 * starts as a primary, the relay ends at once.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/sinval.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/database.h"
#include "base/involvement.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/channels/channel_map.h"
#include "notify/dispatch/damage.h"
#include "notify/dispatch/dispatch.h"
#include "notify/relay/relay.h"
#include "notify/sender/gap.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"
#include "notify/settings/channel_settings.h"
#include "notify/wal/reorder.h"
#include "notify/wal/wal_reader.h"
#include "workers/relay_worker.h"
#include "workers/worker.h"

/*
 * A server before 16, or with max_wal_senders = 0, does not wake the relay when there is more WAL.  On such a server,
 * the relay looks for more WAL after a pause: 1/PAUSE_PART of the time since the last record, but at least 1 ms and
 * at most HERALD_LOOK_MAX_MS.
 */
#define PAUSE_PART		100

/* After this number of records the relay notes its progress, even if it sends nothing. */
#define NOTE_EVERY		1000

static HeraldWalReader *reader;
static HeraldReorder *reorder;
static HeraldReached reached;

/*
 * The latest anchor that note_anchor() has accepted.  The anchor becomes `reached.from` when note_progress() publishes
 * the next `place`, together with a `wal` after the anchor.  A client that has received everything before this place
 * lacks only commits after this `wal`, so that client can begin to read the WAL at the anchor.
 */
static HeraldWalAnchor anchor;

static XLogRecPtr done;			/* `reached.wal` when the current record was
								 * taken; an event that ends there or earlier
								 * was sent already, or replayed before the
								 * relay began, and is not sent */
static HeraldRelayFigures figures;

/* herald_reorder_forged() and herald_reorder_newer() after the last record that was counted. */
static uint64 forged_seen;
static uint64 newer_seen;

/* A search, in one database, for a channel that has listeners and matches the pattern. */
typedef struct Match
{
	Oid			database;
	const char *pattern;
	bool		is_found;
} Match;

PGDLLEXPORT void herald_relay_main(Datum arg);

static void connect_to_server(void);
static bool begin(void);
static void run(void);
static void take_record(void);
static void count_messages(void);
static void take_event(const HeraldWalEvent *event);
static void note_anchor(const HeraldWalEvent *event);
static void note_gap(const HeraldWalEvent *event);
static void note_setting(const HeraldWalEvent *event);
static bool look_for_match(const HeraldChannelInfo *channel, void *arg);
static void note_progress(XLogRecPtr wal);
static void relay(const HeraldWalEvent *batch);
static void note_last(const HeraldWalEvent *batch);
static HeraldWalNext send_batch(const HeraldWalEvent *batch);
static HeraldWalNext send_or_catch(const HeraldWalEvent *batch);
static void add(const HeraldWalNotification *notification);
static void skip_gap(void);
static XLogRecPtr shortly_before(XLogRecPtr position);
static void report_gap(Oid database, const char *reason);
static void publish_gap(Oid database);
static void append_gap(Oid database);
static void publish_gaps(void);
static void wait_for_more(XLogRecPtr position);
static long next_pause(XLogRecPtr position);
static void serve(void);


void
herald_relay_register(void)
{
	if (!herald_worker_register_as("pg_herald relay", "herald_relay_main", BgWorkerStart_ConsistentState,
								   BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION))
		herald_relay_never_begins();
}

void
herald_relay_main(Datum arg)
{
	connect_to_server();
	if (begin())
	{
		run();

		/*
		 * A position from before the relay's end does not cover unlogged
		 * channels, whose notifications this queue lacks until then.  A gap
		 * gives all later positions a higher place, which shows the
		 * difference (herald_relay_covers()).
		 */
		if (herald_wal_coverage_is_doubt(herald_reorder_coverage(reorder)))
		{
			report_gap(InvalidOid, "the server may have run without pg_herald");
			publish_gaps();
		}
		else
			append_gap(InvalidOid);
		note_progress(herald_wal_reader_position(reader));
		HERALD_STOP_POINT("relay-finish");
		herald_relay_finish();
		ereport(LOG,
				(errmsg("pg_herald has relayed all logged notifications from before the promotion")));
	}
	proc_exit(0);				/* after exit code 0, the postmaster does not
								 * start the relay again */
}

/* Connect to the server without a database, which is enough for transactions and shared catalogs. */
static void
connect_to_server(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);		/* ends the relay even while it waits for a
								 * lock */
	BackgroundWorkerUnblockSignals();
	herald_shared_set_worker(HERALD_WORKER_RELAY);
	BackgroundWorkerInitializeConnectionByOid(InvalidOid, InvalidOid, 0);
	temp_file_limit = -1;		/* the limit is meant for files of queries */

	/* Switch off timeouts that the server's configuration sets for sessions. */
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	herald_dispatch_attach();
}

/* Returns false if there is nothing to do on this server. */
static bool
begin(void)
{
	/*
	 * Read the head before calling RecoveryInProgress().  If that function
	 * then returns true, no session has sent anything before this head.
	 */
	HeraldPosition head = atomic_load(&herald_queue->head);
	XLogRecPtr	from;
	TimeLineID	timeline;

	if (herald_relay_is_active())
	{
		(void) herald_relay_reached(&reached);
		herald_relay_figures(&figures);
		from = herald_relay_read_from();

		/*
		 * Publish the gaps again, since an earlier process of the relay may
		 * have ended before it notified the listeners.
		 */
		if (herald_wal_coverage_is_doubt(reached.coverage))
		{
			publish_gaps();
			herald_relay_publish(&reached, from);
		}
	}
	else if (RecoveryInProgress())
	{
		/*
		 * Begin to read at a restart point, since transactions that are open
		 * now may have written parts of their messages already.
		 */
		GetOldestRestartPoint(&from, &timeline);
		memset(&reached, 0, sizeof(reached));
		reached.wal = GetXLogReplayRecPtr(NULL);
		reached.place = head;
		reached.from.wal = from;
		reached.complete_from = head;
		reached.coverage = HERALD_WAL_UNKNOWN;
		herald_relay_begin(&reached, from);
	}
	else
	{
		herald_relay_is_not_needed();
		return false;
	}

	reorder = herald_reorder_begin(reached.coverage);
	reader = herald_wal_reader_open(from);
	herald_wal_reader_seek_after(reader, from);
	return true;
}

/* Read until everything from before the promotion has been sent. */
static void
run(void)
{
	XLogRecPtr	end = InvalidXLogRecPtr;	/* the end of recovery, or a later
											 * position; InvalidXLogRecPtr:
											 * the server is in recovery */

	for (uint32 count = 1;; count++)
	{
		HeraldWalRead result;

		serve();
		if (end == InvalidXLogRecPtr && !RecoveryInProgress())
			end = GetFlushRecPtr(NULL);
		if (end != InvalidXLogRecPtr && herald_wal_reader_position(reader) >= end)
			return;

		result = herald_wal_reader_next(reader);
		switch (result)
		{
			case HERALD_WAL_READ_RECORD:
				take_record();
				if (count % NOTE_EVERY == 0)
					note_progress(herald_wal_reader_position(reader));
				break;
			case HERALD_WAL_READ_END:
				note_progress(herald_wal_reader_position(reader));
				if (end != InvalidXLogRecPtr)
					return;
				wait_for_more(herald_wal_reader_position(reader));
				break;
			case HERALD_WAL_READ_GONE:
				report_gap(InvalidOid, herald_wal_reader_reason(reader));
				skip_gap();
				break;
		}
	}
}

static void
take_record(void)
{
	XLogReaderState *record = herald_wal_reader_record(reader);
	HeraldWalEvent event;

	done = reached.wal;
	herald_reorder_take(reorder, record);
	count_messages();
	while (herald_reorder_event(reorder, &event))
		take_event(&event);
	if (XLogRecGetRmid(record) == RM_XACT_ID &&
		(XLogRecGetInfo(record) & XLOG_XACT_OPMASK) == XLOG_XACT_COMMIT)
		figures.last_commit = ((xl_xact_commit *) XLogRecGetData(record))->xact_time;
}

/* Count this record's forged and newer messages, unless counted before, or replayed before the relay began. */
static void
count_messages(void)
{
	uint64		forged = herald_reorder_forged(reorder);
	uint64		newer = herald_reorder_newer(reorder);

	if (herald_wal_reader_position(reader) > reached.wal)
	{
		figures.forged += forged - forged_seen;
		figures.newer += newer - newer_seen;
	}
	forged_seen = forged;
	newer_seen = newer;
}

static void
take_event(const HeraldWalEvent *event)
{
	switch (event->kind)
	{
		case HERALD_WAL_EVENT_ANCHOR:
			note_anchor(event);
			break;
		case HERALD_WAL_EVENT_SETTING:
			if (event->commit.end > done)
				note_setting(event);
			break;
		case HERALD_WAL_EVENT_BATCH:
			/* Skip batches that this server has sent after the promotion. */
			if (event->commit.run == herald_control->server_run)
				break;
			if (event->commit.end > done)
				relay(event);
			else
				note_last(event);
			break;
		case HERALD_WAL_EVENT_GAP:
			if (event->commit.end > done)
				note_gap(event);
			break;
	}
}

/*
 * An anchor between the first message and the end of a transaction is left out: a reader that begins at this anchor may
 * not meet the message, and the transaction's commit may be a client's witness (core/receipt.h).  Another anchor will
 * follow.
 */
static void
note_anchor(const HeraldWalEvent *event)
{
	if (event->anchor.wal <= reached.from.wal || herald_reorder_oldest(reorder) != InvalidXLogRecPtr)
		return;
	anchor = event->anchor;
}

/* `wal` and `place` are published unchanged, since the same record may have more events. */
static void
note_gap(const HeraldWalEvent *event)
{
	if (event->is_creation)
	{
		/*
		 * The new database has no listeners yet.  The gap separates positions
		 * of this database from positions of an earlier database with the
		 * same oid.
		 */
		append_gap(event->database);
		herald_database_created(event->database);
	}
	else
	{
		/*
		 * [X4] Publish the coverage before the gap.  A session enters its
		 * channels in the map, and then looks at the coverage.  So either the
		 * session sees HERALD_WAL_UNCOVERED, or its channels are in the map
		 * before the gap is published, and the gap reaches the session.
		 */
		if (herald_reorder_coverage(reorder) == HERALD_WAL_UNCOVERED)
		{
			reached.coverage = HERALD_WAL_UNCOVERED;
			herald_relay_publish(&reached, herald_relay_read_from());
		}
		report_gap(event->database, event->reason);
		if (OidIsValid(event->database))
			publish_gap(event->database);
		else
			publish_gaps();
	}
	reached.coverage = herald_reorder_coverage(reorder);
	herald_relay_publish(&reached, herald_relay_read_from());
}

/*
 * The changed setting itself is replicated.  But sessions that listen here to one of its channels may have missed
 * notifications before the change, or will miss notifications after the change, so they are notified of a gap.
 * `complete_from` is published before the channel map is scanned.  A resuming session does the reverse: it first
 * enters its channels in the map, and then looks at `complete_from` (herald_subscriptions_look_for_missed()).  So
 * either the session sees the new value, or the scan finds the session's channels.  `wal` and `place` are published
 * unchanged, since the same record may have further settings, and may also have notifications.
 */
static void
note_setting(const HeraldWalEvent *event)
{
	Match		match = {event->database, event->pattern};

	publish_gap(InvalidOid);
	herald_relay_publish(&reached, herald_relay_read_from());
	HERALD_STOP_POINT("relay-setting");
	if (!herald_shared_is_damaged())
		herald_channels_scan(look_for_match, &match);
	if (match.is_found)
	{
		report_gap(event->database, "the setting of a channel that has listeners here has changed");
		publish_gap(event->database);
	}
}

static bool
look_for_match(const HeraldChannelInfo *channel, void *arg)
{
	Match	   *match = arg;

	match->is_found = channel->database == match->database && channel->count > 0 &&
		herald_setting_matches(match->pattern, channel->name);
	return !match->is_found;
}

/* Record in `reached` that the WAL up to `wal` has been read, and its notifications sent. */
static void
note_progress(XLogRecPtr wal)
{
	XLogRecPtr	oldest = herald_reorder_oldest(reorder);

	/*
	 * The relay begins to read before `reached.wal`, to find messages of open
	 * transactions.  Until it has read up to there, there is no progress to
	 * publish.
	 */
	if (wal < reached.wal)
		return;
	reached.wal = wal;
	reached.place = atomic_load(&herald_queue->head);
	if (anchor.wal > reached.from.wal)
		reached.from = anchor;
	reached.coverage = herald_reorder_coverage(reorder);
	herald_relay_publish(&reached, oldest != InvalidXLogRecPtr ? oldest : wal);
	herald_relay_publish_figures(&figures);
}

/*
 * No interrupt is served between the relay's own commit in send_batch() and note_progress().  So the relay cannot be
 * terminated before it has noted the batch as sent, and does not send the batch again when it is started again.
 */
static void
relay(const HeraldWalEvent *batch)
{
	if (herald_shared_is_damaged())
	{
		herald_damage_tell();
		note_progress(batch->commit.end);
		return;
	}
	if (send_or_catch(batch) == HERALD_WAL_NEXT_END)
	{
		figures.batches++;
		note_last(batch);
		atomic_store_explicit(&herald_control->logs, 1, memory_order_relaxed);
	}
	else
	{
		report_gap(batch->database, "a transaction could not be read or sent again");
		publish_gap(batch->database);
	}
	note_progress(batch->commit.end);
}

/*
 * Note a batch that the relay has sent, or that was committed before the relay began.  Positions of this server claim
 * both kinds of batches as received, so another server must not send these batches again.
 */
static void
note_last(const HeraldWalEvent *batch)
{
	if (batch->commit.end > reached.last.end)
		reached.last = batch->commit;
}

/* Returns HERALD_WAL_NEXT_END if the batch was sent, and HERALD_WAL_NEXT_GONE if the batch cannot be sent. */
static HeraldWalNext
send_or_catch(const HeraldWalEvent *batch)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile HeraldWalNext result = HERALD_WAL_NEXT_GONE;

	PG_TRY();
	{
		result = send_batch(batch);
	}
	PG_CATCH();
	{
		/* The disk may be full, for example.  FATAL errors are not caught. */
		HOLD_INTERRUPTS();
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	return result;
}

static HeraldWalNext
send_batch(const HeraldWalEvent *batch)
{
	HeraldWalNotification notification;
	HeraldWalNext result;

	StartTransactionCommand();
	herald_is_involved = true;
	herald_reorder_read_begin(reorder);
	while ((result = herald_reorder_read(reorder, &notification)) == HERALD_WAL_NEXT_NOTIFICATION)
		add(&notification);
	HERALD_STOP_POINT("relay-send");
	if (result != HERALD_WAL_NEXT_END)
	{
		AbortCurrentTransaction();
		return result;
	}
	herald_publish_as(batch->database, batch->commit, batch->sender);
	CommitTransactionCommand();
	return result;
}

static void
add(const HeraldWalNotification *notification)
{
	if (notification->channel_length >= NAMEDATALEN)
		elog(ERROR, "channel name too long");
	herald_pending_add_unique(notification->channel, notification->channel_length,
							  notification->payload, notification->payload_length);
	herald_shared_count(HERALD_COUNT_NOTIFICATIONS, 1);
}

/*
 * Continue at the end of the WAL that can be read now, with the notifications that are committed later.  A run without
 * pg_herald may have begun in the skipped WAL, so listeners are notified again when the coverage is known.
 */
static void
skip_gap(void)
{
	XLogRecPtr	position = herald_wal_readable_to();
	XLogRecPtr	from = shortly_before(position);

	/* If reading began before the place of the failure, it would fail again. */
	if (herald_wal_reader_position(reader) >= from)
		from = position;
	memset(&reached, 0, sizeof(reached));
	reached.wal = position;
	reached.place = atomic_load(&herald_queue->head);
	reached.complete_from = atomic_load(&herald_queue->head);
	reached.coverage = HERALD_WAL_LOST;
	herald_relay_begin(&reached, from); /* [X4] the coverage is published
										 * before the gap, as in note_gap() */
	publish_gaps();
	reached.place = atomic_load(&herald_queue->head);
	herald_relay_publish(&reached, from);
	memset(&anchor, 0, sizeof(anchor));
	herald_reorder_end(reorder);
	reorder = herald_reorder_begin(reached.coverage);
	forged_seen = newer_seen = 0;
	herald_wal_reader_seek_after(reader, from);
}

/*
 * Returns the place from which the relay must read in order to meet the messages of transactions that are open at
 * `position`.  Messages are written shortly before the commit, so this place is the start of the previous WAL file or,
 * if the server has removed that file, the start of the current one.
 */
static XLogRecPtr
shortly_before(XLogRecPtr position)
{
	XLogSegNo	segment = position / wal_segment_size;

	segment = Max(segment > 0 ? segment - 1 : 0, XLogGetLastRemovedSegno() + 1);
	return Min(segment * wal_segment_size, position);
}

/* Report a gap in the server log.  database: InvalidOid for a gap in all databases. */
static void
report_gap(Oid database, const char *reason)
{
	figures.gaps++;
	ereport(LOG,
			(errmsg("pg_herald cannot relay logged notifications: %s", reason),
			 errdetail(OidIsValid(database) ? "The listeners in the database with OID %u are notified that they have missed some." :
					   "All listeners on this server are notified that they have missed some.", database)));
}

/*
 * Put a gap into the queue for each database that has listeners.  A session that this loop does not see begins to
 * listen later, so that session needs no gap.
 */
static void
publish_gaps(void)
{
	Oid		   *databases = palloc(herald_wakeup->slots * sizeof(Oid));
	int			count = 0;

	for (uint32 slot = 0; slot < herald_wakeup->slots; slot++)
	{
		Oid			database = atomic_load(&herald_slots[slot].database);
		int			i = 0;

		if (atomic_load(&herald_slots[slot].pid) == 0 || !OidIsValid(database))
			continue;
		while (i < count && databases[i] != database)
			i++;
		if (i < count)
			continue;
		databases[count++] = database;
		publish_gap(database);
	}
	pfree(databases);

	/*
	 * Positions from before the gap must differ from positions after the gap,
	 * even if there are no listeners.
	 */
	if (count == 0)
		publish_gap(InvalidOid);
}

static void
publish_gap(Oid database)
{
	append_gap(database);
	reached.complete_from = atomic_load(&herald_queue->head);
}

/*
 * Put a gap into the queue, at a place of its own.  So the database's listeners first receive everything that was sent
 * before the gap, and positions from before and after the gap differ, even if the queue is idle.
 */
static void
append_gap(Oid database)
{
	if (herald_shared_is_damaged())
		return;					/* listeners are notified of the damage
								 * instead */
	StartTransactionCommand();
	herald_is_involved = true;
	herald_gap_publish(database);
	CommitTransactionCommand();
}

/*
 * Servers that wake the relay for each record do not wake it at the end of recovery.  So the pause is limited on
 * them, too.
 */
static void
wait_for_more(XLogRecPtr position)
{
	ConditionVariable *replayed = herald_replay_condition();
	long		pause_ms = replayed != NULL ? HERALD_LOOK_MAX_MS : next_pause(position);

	HERALD_MAY_WAIT();
	if (replayed != NULL)
		herald_wait_prepare(HERALD_WAIT_RELAY_IDLE, replayed);
	if (herald_wal_readable_to() <= position)
		herald_wait_sleep(HERALD_WAIT_RELAY_IDLE, pause_ms);
	herald_wait_end();
}

static long
next_pause(XLogRecPtr position)
{
	static XLogRecPtr last;
	static long quiet_ms;		/* sum of the pauses since the last record */
	long		pause_ms;

	if (position != last)
		quiet_ms = 0;
	last = position;
	pause_ms = Max(1, Min(quiet_ms / PAUSE_PART, HERALD_LOOK_MAX_MS));
	quiet_ms += pause_ms;
	return pause_ms;
}

static void
serve(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		temp_file_limit = -1;
	}
	if (catchupInterruptPending)
		ProcessCatchupInterrupt();
}
