/*
 * settings.pml
 *	  Which notifications a commit logs while the settings of channels change: [X5] of
 *	  src/notify/settings/channel_settings.c, with src/notify/settings/log_setting.c.
 *
 * Processes: SENDERS, each with TRANSACTIONS, one after the other. Each of these transactions reads
 * the settings, unless it has a copy of their present version, and sends a notification; it may be
 * rolled back before its commit record. CHANGERS, each with CHANGES of the setting of the
 * channel; with ABORTS, a change may be rolled back, also while it waits for commits.
 *
 * A step is one access to shared memory, with what is local to the process around it: sequential
 * consistency. A record of the WAL is one step.
 *
 * Simpler than in C: there is one database, one channel, and one session for each slot. The changers'
 * lock is the server's. Invalidations are left out: on a primary the version alone says
 * whether a copy is up to date. Nothing else is left of a change that is rolled back. A changer's
 * own notifications are logged, since it has made the version odd itself.
 *
 * Checked: while the latest commit record of a change says that the channel is logged, each commit
 * with a notification has logged it. At the end no process waits, no slot has an announcement, and the
 * version is even.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: 0.1 to 1.2 million states; with larger bounds up to 16 million.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef SENDERS
#define SENDERS			2
#endif
#ifndef TRANSACTIONS
#define TRANSACTIONS	1
#endif
#ifndef CHANGERS
#define CHANGERS		1
#endif
#ifndef CHANGES
#define CHANGES			1
#endif

#define IS_ODD(v)		((v) & 1)
#define NOT_READ		255
#define ANNOUNCEMENT(v)	((v) + 1)	/* in C the database is above the version, so it is not 0 either */

byte version;					/* settings_version */
byte composes[SENDERS];
bit settings_lock;				/* herald_channel_settings_lock() */
bit sleeps;						/* the holder of that lock is in the queue of settings_released */

bit visible;					/* what the catalog shows: is the channel logged? */
bit in_wal;						/* what the latest commit record of a change says */

byte done;						/* processes that have ended */

/* ---- senders ---- */

/* try_read(), by a statement */
inline read_settings()
{
	used = version;
	if
	:: used == copied
	:: else ->
#ifdef VERSION_AFTER_READING
		copy = visible;
		copied = version
#else
		atomic { copy = visible; copied = used }
#endif
	fi
}

/* herald_channel_settings_use(), in the commit */
inline use_settings()
{
	now = version;
#ifdef LOOKS_ONCE
	used = now;
	composes[me] = ANNOUNCEMENT(used);
#else
	atomic { used = now; composes[me] = ANNOUNCEMENT(used) };		/* [X5] announce, then look again */
	do
	:: true ->
		now = version;
		if
		:: now == used -> break
		:: else -> atomic { used = now; composes[me] = ANNOUNCEMENT(used); has_moved = 1 }
		fi
	od;
	if
#ifndef MOVES_ON_SILENTLY
	:: has_moved -> atomic { sleeps = 0; has_moved = 0 }	/* the version from before is not in use any more */
#endif
	:: else -> has_moved = 0
	fi;
#endif
	atomic {
#ifdef ODD_COPY_IS_GOOD
		logs = (copied != used -> 1 : copy);
#else
		logs = (copied != used || IS_ODD(used) -> 1 : copy);
#endif
		now = 0
	}
}

/* herald_channel_settings_end() */
inline end_use()
{
#ifdef LOOKS_BEFORE_CLEARING
	now = version;
	composes[me] = 0;
#else
	composes[me] = 0;			/* [X5] take the announcement back, then look */
	now = version;
#endif
	if
#ifndef NOBODY_IS_WOKEN
	:: now != used -> sleeps = 0
#endif
	:: else
	fi;
	now = 0
}

proctype sender(byte me)
{
	byte used, now, transactions, copied = NOT_READ;
	bit copy, logs, has_moved;

	do
	:: transactions < TRANSACTIONS ->
		transactions++;
		read_settings();
		use_settings();
		if
		:: true					/* it is rolled back */
		:: true ->
#ifdef CLEARS_BEFORE_COMMIT
			composes[me] = 0;
#endif
			atomic { assert(logs || !in_wal) }		/* its commit record */
		fi;
		end_use();
		atomic { used = 0; logs = 0 }
	:: else -> break
	od;
	atomic { done++; transactions = 0; copied = 0; copy = 0 }
}

/* ---- changers ---- */

#define IS_IN_USE(slot)	(composes[slot] != 0 && composes[slot] != ANNOUNCEMENT(version))

/* What ConditionVariablePrepareToSleep() and ConditionVariableSleep() do */
inline await_senders()
{
	do
	:: slot < SENDERS ->
#ifndef LOOKS_BEFORE_QUEUEING
		sleeps = 1;
#endif
		do
		:: atomic { !IS_IN_USE(slot) -> break }
		:: atomic { IS_IN_USE(slot) -> skip };
#ifdef LOOKS_BEFORE_QUEUEING
			sleeps = 1;
#endif
			if
			:: atomic { !sleeps -> sleeps = 1 }
			:: fails -> is_canceled = 1; break
			fi
		od;
		sleeps = 0;
		slot = (is_canceled -> SENDERS : slot + 1)
	:: else -> break
	od;
	slot = 0
}

/* herald_channel_settings_exclude_senders(), in the commit */
inline exclude_senders()
{
#ifdef ODD_AFTER_LOOKING
	await_senders();
	version++
#else
	version++;					/* [X5] then look at the slots */
#ifndef DOES_NOT_WAIT
	await_senders()
#endif
#endif
}

inline make_visible()
{
#ifdef EVEN_BEFORE_VISIBLE
	version++;
	visible = in_wal
#else
	visible = in_wal;
#endif
}

proctype changer()
{
	byte changes, slot;
	bit fails, is_canceled;

	do
	:: changes < CHANGES ->
		atomic { !settings_lock -> settings_lock = 1; changes++ };
#ifdef ABORTS
		if :: fails = 1 :: true fi;
#endif
		exclude_senders();
		if
		:: fails
		:: else ->
			in_wal = !in_wal;	/* its commit record */
			make_visible()
		fi;
#ifdef LOCK_BEFORE_EVEN
		settings_lock = 0;
#endif
#ifndef EVEN_BEFORE_VISIBLE
		version++;
#endif
#ifndef LOCK_BEFORE_EVEN
		settings_lock = 0;
#endif
		atomic { fails = 0; is_canceled = 0 }
	:: else -> break
	od;
	atomic { done++; changes = 0 }
}

init
{
	byte i;

	atomic {
		if
		:: visible = 1; in_wal = 1
		:: true
		fi;
		do
		:: i < SENDERS -> run sender(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CHANGERS -> run changer(); i++
		:: else -> break
		od;
		i = 0
	};
	done == SENDERS + CHANGERS;
	assert(!IS_ODD(version) && visible == in_wal && !settings_lock);
	do
	:: i < SENDERS -> assert(composes[i] == 0); i++
	:: else -> break
	od
}
