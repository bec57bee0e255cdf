/*-------------------------------------------------------------------------
 *
 * stress.h
 *	  The stress of notifications: its world, with threads that act as backends.
 *
 * In a round senders send, and listeners listen, run transactions, leave and
 * come back.  With everything at rest, the messages that each listener received
 * are compared with those that were sent.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_NOTIFICATIONS_STRESS_H
#define HERALD_NOTIFICATIONS_STRESS_H

#include <pthread.h>

#include "sequencer.h"
#include "queue_reader.h"
#include "reasons.h"
#include "run.h"
#include "retention.h"
#include "wakeup.h"

#define SENDERS			4
#define LISTENERS		6
#define WRITERS			(SENDERS + LISTENERS)	/* listeners send too */
#define CHANNELS		8
#define DATABASES		2
#define SLOTS			130		/* three words of the wakeup set */
#define SESSIONS_MAX	32		/* that one listener ends by itself in one round */
#define RESETS_MAX		4096	/* and that an overrun ends */
#define READ_BEFORE		16		/* batches that a listener may read again */
#define NOT_LISTENING	UINT64_MAX

/* The head of a payload; a pattern follows. */
typedef struct Stamp
{
	uint32_t	writer;
	uint32_t	seq;			/* of the batch, per writer */
	uint32_t	entry;			/* within the batch */
	uint32_t	length;			/* of the payload */
	uint32_t	doomed;			/* its batch was to be aborted */
} Stamp;

/* A committed message, as the writer remembers it. */
typedef struct Sent
{
	HeraldPosition batch;
	uint32_t	channel;
	uint32_t	database;
	uint64_t	digest;
} Sent;

/* Used by the owner; main reads it between the barriers. */
typedef struct Writer
{
	uint32_t	id;
	uint64_t	random;
	uint32_t	seq;
	Sent	   *sent;			/* in this round */
	size_t		sent_count;
	size_t		sent_size;
	char	   *bytes;			/* room for the largest batch */
} Writer;

/*
 * One stretch of listening without a gap: from join, or an overrun, to the next
 * overrun, leave, or the end of the round.
 */
typedef struct Session
{
	HeraldPosition start[CHANNELS]; /* or NOT_LISTENING */
	HeraldPosition stop;		/* everything before it has been read */
	uint64_t	count;			/* messages received */
	uint64_t	digest;			/* sum of their digests */
} Session;

typedef struct Listener
{
	uint32_t	index;
	uint32_t	slot;
	uint32_t	database;
	uint64_t	random;
	sem_t		signal;			/* stands for SIGUSR1 */
	HeraldReasons reasons;
	_Atomic uint32_t parked;	/* asleep until signalled, in PHASE_QUIESCE */
	_Atomic uint32_t woken;		/* how often it was woken from that */
	_Atomic uint32_t reported;	/* as overrun, and it has not noticed yet */

	/* Used by the owner; main reads it between the barriers. */
	bool		joined;
	Session		session;
	HeraldPosition last_batch;	/* the message read last, in the queue's order */
	uint32_t	last_entry;
	uint32_t	last_seq[WRITERS];
	HeraldPosition read_before[READ_BEFORE];	/* random batches of this round; 0: none */
	uint64_t	batch_count;	/* received of last_batch, not in session yet */
	uint64_t	batch_digest;
	Session		ended[SESSIONS_MAX + RESETS_MAX];
	int			ended_count;
	HeraldPosition pinned;		/* the position in our word, or the one before */
	HeraldPosition excused;		/* below this we may be lapped, as we were overrun */
	char	   *buffer;
	size_t		buffer_size;
} Listener;

/* How often each thing happened: a run in which something never happened proves little. */
typedef enum Count
{
	COUNT_BATCHES, COUNT_ABORTS, COUNT_RECEIVED, COUNT_PASSES, COUNT_AGAIN,
	COUNT_REQUEUES, COUNT_SELF_PASSES, COUNT_SESSIONS, COUNT_LEFT_READING, COUNT_ELSEWHERE,
	COUNT_MORE, COUNT_SIGNALS, COUNT_SAVED, COUNT_RESCUES, COUNT_RECYCLES, COUNT_FULL,
	COUNT_PACED, COUNT_LAGS, COUNT_SPILLED, COUNT_READ_SPILLED, COUNT_DISK_FULL,
	COUNT_DROPPED, COUNT_OVERRUN_LIMIT, COUNT_OVERRUN_ERROR, COUNT_RESETS, COUNT_DISCONNECTS,
	COUNT_LARGE, COUNT_READ_LARGE, COUNT_HOLDS, COUNT_GONE, COUNT_PASSED_OVER,
	COUNTS
} Count;

typedef struct World
{
	HeraldQueue  *queue;
	HeraldWakeup *wakeup;
	HeraldRetention retention;
	HeraldLargeTable large;
	HeraldSpiller spiller;		/* all of these */

	/* Set by main, between the barriers. */
	uint32_t	batches_per_sender;
	bool		rescues;		/* does the watchdog take back turns? */
	bool		paced;			/* do senders wait for listeners? */
	bool		lags;			/* do listeners fall behind by laps? */
	bool		disk_fills;		/* do writes fail? */
	bool		alternates;		/* are most segments of one database each? */
	bool		takes_unlocked; /* do large files take room without the lock? */
	HeraldRetentionLimits limits;	/* past bytes_max the oldest are dropped */

	_Atomic int leftovers;		/* for the watchdog to dispatch */

	/* The channel map. */
	pthread_rwlock_t map_lock[CHANNELS];
	bool		map[CHANNELS][LISTENERS];

	/* Used by the dispatcher. */
	HeraldPosition run;			/* where it ends */
	bool		marked[LISTENERS];	/* in this run */
	uint32_t	entries_marked; /* of the batch that is being marked */

	Writer		writers[WRITERS];
	Listener	listeners[LISTENERS];
} World;

extern World world;

/* channels.c: the channel map, dispatching, and signals. */
extern void map_set(uint32_t channel, uint32_t listener, bool on);
extern HeraldSequencerResult dispatch_and_pump(uint64_t budget);
extern void pump(uint32_t turns);

/* A pass has ended; the server may be at rest, or not. */
extern void pump_after_pass(uint64_t *random);

/* writer.c */
extern void writer_init(Writer *writer, uint32_t id);
extern void writer_send(Writer *writer);

/* Now and then, let other threads run for a while. */
extern void dawdle(uint64_t *random);

extern void sender_act(void *arg);

/* The payload's pattern: fill it in, and check that it is intact. */
extern void pattern_fill(char *payload, const Stamp *stamp);
extern bool pattern_is_intact(const char *payload, const Stamp *stamp);
extern uint64_t stamp_digest(const Stamp *stamp);

/* Where the stamp's batch is in the WAL: in every other batch nowhere, so all zero. */
extern HeraldCommitId stamp_commit(const Stamp *stamp);

/* listener.c */
extern void listener_act(void *arg);

/* spill.c: as in src/notify/storage/spill.h. */
extern void spill_init(void);
extern bool spill_make_room(uint64_t *random);
extern void spill_trim(void);
extern bool spill_read(HeraldPosition from, uint64_t length, char *to);
extern void spill_end_reading(void);
extern int	spill_count_files(void);
extern void spill_delete_doomed(void);
extern bool spill_give_up(bool (*oldest) (const HeraldSpiller *spiller));
extern void spill_lock(void);
extern void spill_unlock(void);
extern bool spill_has_lock(void);	/* this thread */
extern bool spill_leave_room(uint64_t bytes);	/* under the lock */

/* large.c: as in src/notify/storage/large_writer.h, large_reader.h. */
extern uint64_t large_write(Writer *writer, uint64_t length);	/* of its bytes */
extern void large_place(uint64_t number, HeraldPosition position, uint64_t sets);
extern int	large_count_files(void);
extern void large_remove(uint64_t number, uint64_t bytes);	/* by the spiller */
extern bool large_read(uint64_t number, uint64_t offset, uint64_t length, char *to);

/* Did the calling thread's last read end at a file that was given up? */
extern bool large_take_missed(void);

/* watchdog.c */
extern void watchdog_act(void *arg);

#endif							/* HERALD_NOTIFICATIONS_STRESS_H */
