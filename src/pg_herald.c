/*-------------------------------------------------------------------------
 *
 * pg_herald.c
 *	  The module's entry point, and an overview.
 *
 * The path of a notification:
 *
 * 1. Statements and plans enter by the server's hooks (hooks.c).  The utility hook takes over
 *	  NOTIFY.  A call of pg_notify() is replaced in the finished plan by a call of
 *	  pg_herald_notify() (notify/sender/retarget.c).  Both end in herald_notify()
 *	  (notify/sender/notify.c).  LISTEN and UNLISTEN are executed by the server as well, so
 *	  that a notification that bypasses pg_herald still arrives.
 *
 * 2. The notification stays in the sender's own memory until its transaction
 *	  ends (notify/sender/pending.c), in the form that it will have in the queue
 *	  (core/queue_layout.h).  A hash table finds duplicates.  The notifications
 *	  of a large transaction go to a file (notify/sender/large_transaction.c).
 *
 * 3. Before the commit record is written (transaction.c), the sender reserves a
 *	  place in the queue by moving its head, and copies the notifications there
 *	  as one batch (notify/sender/publish.c, core/queue.c).  If the memory of the
 *	  queue is full, it waits until there is room (notify/sender/admission.c).  An
 *	  error is allowed up to this point, and no lock is held after it: other
 *	  transactions reserve, flush and commit at the same time.
 *
 * 4. When the commit is visible, the sender's locks are released and its catalog changes are
 *	  announced, the sender sets the state of its batch and tries to become the dispatcher
 *	  (notify/dispatch/dispatch.c).  If another process is the dispatcher, that process
 *	  dispatches the batch too: no process waits.
 *
 * 5. The dispatcher takes finished batches in the queue's order, up to the first
 *	  one that is still being committed (core/sequencer.c).  It looks up each
 *	  channel (notify/channels/channel_map.c) and marks the channel's listeners:
 *	  a mark changes the listener's word (core/listener_word.c) and puts the
 *	  listener into the wakeup set (core/wakeup.c).
 *
 * 6. A listener is signalled when it gets a turn, and there are only as many turns as CPUs
 *	  (notify/dispatch/turns.c, base/signal.c).  The dispatcher hands out the first turn.  A
 *	  listener that has read its messages returns its turn and hands out all free turns.  The
 *	  watchdog takes back a turn whose listener makes no progress (workers/watchdog.c).
 *
 * 7. The signal makes the server run an empty transaction in an idle backend.
 *	  Our callback recognizes it (notify/listener/session.c), reads the queue
 *	  from the listener's position (notify/listener/deliver.c,
 *	  core/queue_reader.c), filters by the listener's channels
 *	  (notify/listener/subscriptions.c) and sends to the client.  A backend that
 *	  is in a transaction is not signalled; it reads when the transaction ends.
 *
 * 8. Memory that no listener needs is used again (core/queue.c).  Messages that a laggard has
 *	  not read are written to temporary files first (notify/storage/spill.c, core/retention.c).
 *	  Beyond herald.max_queue_size the oldest ones are given up, and a laggard that has not
 *	  read them is notified of that when it reads.
 *
 * 9. A client that comes back with a position (notify/position/token.c) is given what it lacks
 *	  by a cursor (notify/cursor/cursor.c): from the queue, if the position is this server's and
 *	  the queue still has it; else, for logged channels, from the WAL (notify/cursor/wal_source.c)
 *	  up to a cut, a place in the queue that belongs to an end of the WAL (notify/cursor/cut.c).
 *	  The queue is held from there until the commit of LISTEN; then the next delivery sends
 *	  what the WAL had, and goes on in the queue.
 *
 * 10. On a standby the relay (workers/relay_worker.c) reads the WAL as it is replayed, and puts
 *	  the batches of logged channels into the queue in the order of the commits; from there steps
 *	  5 to 8 are the same.
 *
 * Caches are a library of their own over the C interface (api/pg_herald_api.h): see
 * cache/pg_herald_cache.c.
 *
 * docs/internals/ARCHITECTURE.md has the full description.  A tag in a comment, such as [W1],
 * stands at places that depend on the order of each other's memory accesses;
 * docs/internals/LOCKS.md has a list of the tags.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "api/api.h"
#include "base/compat.h"
#include "base/outbox.h"
#include "base/settings.h"
#include "hooks.h"
#include "memory.h"
#include "notify/listener/frames.h"
#include "notify/listener/position_channel.h"
#include "transaction.h"
#include "workers/housekeeper.h"
#include "workers/relay_worker.h"
#include "workers/watchdog.h"

HERALD_MODULE("pg_herald");

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_herald must be loaded via shared_preload_libraries"),
				 errdetail("It needs shared memory, which the server allocates at start."),
				 errhint("Add pg_herald to shared_preload_libraries in postgresql.conf, before modules that track statements, and restart the server.")));

	herald_settings_define(herald_position_channel_heartbeat_changed);
	herald_memory_install_hooks();
	herald_transaction_register_callbacks();
	herald_hooks_install();
	herald_frames_init();
	herald_outbox_init();
	herald_watchdog_register();
	herald_housekeeper_register();
	herald_relay_register();
	herald_api_publish();
}
