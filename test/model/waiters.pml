/*
 * waiters.pml
 *	  Sleeping and waking up: a backend that waits for its own batch [D3]
 *	  and the watchdog [D4], of src/notify/dispatch/dispatch.c and
 *	  watchdog.c, and signals [S1] [S2], of src/core/reasons.h,
 *	  src/base/signal.c and src/notify/listener/session.c.
 *
 * Three models in one file, chosen by -D:
 *
 * OWN_BATCH   SENDERS backends finish a batch each, and wait until it is
 *			   settled. The dispatch is a try-lock with a last look, as proved in
 *			   dispatch.pml. The condition variable is a bit per sleeper, set before
 *			   looking, cleared by a broadcast. In admission.pml senders wait in the
 *			   same way for earlier batches.
 * WATCHDOG	   WAKERS hand out a turn each, which its holder keeps; the watchdog
 *			   takes turns back, and sleeps when it has seen none for any time. Its
 *			   looks while it sleeps are left out.
 * SIGNALS	   WAKERS make the owner of a slot SIGNALLED and signal it; it reads,
 *			   may run a statement, and may leave; then the slot gets a new owner.
 *			   With FAILING, the empty transaction may fail before our callback.
 *
 * A step is one access to shared memory, with what is local to the process
 * around it: sequential consistency.
 *
 * Checked, once no process can move any more: no backend waits for a batch that is
 * settled; no turn is out while the watchdog sleeps; no listener is left SIGNALLED.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: 10 thousand to 400 thousand states.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */

#ifdef OWN_BATCH
#ifndef SENDERS
#define SENDERS		2
#endif

bit is_finished[SENDERS];		/* the queue's words */
byte dispatched, settled;
bit dispatching;
byte dispatch_waiters;
bit sleeps[SENDERS];			/* is in the condition variable's queue */
byte head;
byte done;

inline tell_waiters()
{
	/* [D3] after the position has moved: pairs with announce_wait() */
	if
	:: dispatch_waiters > 0 ->
		/* ConditionVariableBroadcast() */
		i = 0;
		do
		:: atomic { i < SENDERS -> sleeps[i] = 0; i++ }
		:: else -> break
		od;
		i = 0
	:: else
	fi
}

inline herald_dispatch_run()
{
	runs = 0;
	do
	:: true ->
		atomic { found = dispatching; dispatching = 1 };
		if :: found -> break :: else fi;
		do
		:: atomic { dispatched < SENDERS && is_finished[dispatched] ->
			dispatched++;
			runs = 1 };
#ifdef TELL_BEFORE_SETTLED
			tell_waiters();
#endif
			settled = dispatched
		:: dispatched == SENDERS || !is_finished[dispatched] -> break
		od;
		dispatching = 0;
		/* has_finished() */
		if
		:: dispatched < SENDERS && is_finished[dispatched]
		:: dispatched == SENDERS || !is_finished[dispatched] -> break
		fi
	od;
	found = 0;
#ifndef TELL_BEFORE_SETTLED
	if :: runs -> runs = 0; tell_waiters() :: else fi
#endif
}

proctype sender()
{
	byte position, i;
	bit found, runs;

	atomic { position = head; head++ };
	is_finished[position] = 1;
	herald_dispatch_run();

	/* herald_dispatch_wait_after_commit() */
	if
	:: settled > position
	:: settled <= position ->
#ifndef ANNOUNCE_AFTER_LOOKING
		/* [D3] announced before looking: pairs with tell_waiters() */
		dispatch_waiters++;
#endif
#ifndef QUEUE_AFTER_LOOKING
		sleeps[position] = 1;			/* ConditionVariablePrepareToSleep() */
#endif
		do
		:: settled <= position ->
#ifdef QUEUE_AFTER_LOOKING
			sleeps[position] = 1;
#endif
#ifdef ANNOUNCE_AFTER_LOOKING
			dispatch_waiters++;
#endif
			/* ConditionVariableTimedSleep(); a woken backend enters the queue again */
			atomic { !sleeps[position] -> sleeps[position] = 1 };
			herald_dispatch_run()
		:: settled > position -> break
		od;
		sleeps[position] = 0;
		dispatch_waiters--
	fi;
	done++
}

init
{
	byte i;

	atomic {
		do
		:: i < SENDERS -> run sender(); i++
		:: else -> break
		od
	};
	timeout;
	assert(settled == SENDERS);
	assert(done == SENDERS);
end_checked:
	false
}
#endif

#ifdef WATCHDOG
#ifndef WAKERS
#define WAKERS		2
#endif

byte turns_out;
bit watchdog_sleeps, latch;

inline herald_wake_watchdog_if_asleep()
{
	/* [D4] pairs with the exchange in herald_watchdog_main() */
	if
	:: watchdog_sleeps ->
		atomic { found = watchdog_sleeps; watchdog_sleeps = 0 };
		if :: found -> latch = 1 :: else fi
	:: !watchdog_sleeps
	fi
}

proctype waker()
{
	bit found;

#ifdef ALERT_BEFORE_TURN
	herald_wake_watchdog_if_asleep();
	turns_out++
#else
	turns_out++;					/* herald_wakeup_pump() */
	herald_wake_watchdog_if_asleep()
#endif
}

proctype watchdog()
{
	bit is_active;

	do
	:: true ->
		/* look(): a turn that is found is taken back at some time */
		is_active = turns_out > 0;
		if
		:: is_active -> turns_out-- 	/* herald_wakeup_rescue() */
		:: else ->
#ifdef LOOK_BEFORE_SAYING_SO
			is_active = turns_out > 0;
			watchdog_sleeps = 1;
#else
			/* [D4] Announce the sleep, and look once more: pairs with herald_wake_watchdog_if_asleep() */
			watchdog_sleeps = 1;
#ifndef NO_SECOND_LOOK
			is_active = turns_out > 0;
#endif
#endif
			if
			:: is_active
			:: else ->
end_asleep:
				latch ->			/* WaitLatch() */
				latch = 0			/* ResetLatch() */
			fi
		fi
	od
}

init
{
	byte i;

	atomic {
		do
		:: i < WAKERS -> run waker(); i++
		:: else -> break
		od;
		run watchdog()
	};
	timeout;
	assert(turns_out == 0);
end_checked:
	false
}
#endif

#ifdef SIGNALS
#ifndef WAKERS
#define WAKERS		2
#endif

mtype = { FREE, IDLE, PENDING, SIGNALLED, BUSY, BUSY_PENDING };

mtype state = IDLE;				/* the listener's word, without its position */
bit reasons;
byte slot_pid = 1;
byte process = 1;				/* the process that runs in the slot; 0: none */
bit interrupt;					/* that process's notifyInterruptPending */
byte statements, exits, failures;

/* Marks the listener, and if it was idle, gives it a turn. */
proctype waker()
{
	byte to_pid;
	bit found;

	if
	:: atomic { state == IDLE -> state = PENDING };
		if
		:: atomic { state == PENDING -> state = SIGNALLED };
			/* herald_signal_notifications() */
#ifdef PID_BEFORE_REASON
			to_pid = slot_pid;
			atomic { found = reasons; reasons = 1 };
			if :: found -> goto over :: else fi;
#else
			atomic { found = reasons; reasons = 1 };	/* [S1] */
			if :: found -> goto over :: else fi;
			to_pid = slot_pid;							/* [S2] */
#endif
			if
			:: atomic { to_pid != 0 && to_pid == process -> interrupt = 1 }
			:: to_pid == 0 || to_pid != process
			fi
		:: state != PENDING
		fi
	:: atomic { state == BUSY -> state = BUSY_PENDING }
	:: state != IDLE && state != BUSY
	fi;
over:
	skip
}

/* herald_listener_rest() and what follows it in herald_session_end_transaction() */
inline end_transaction()
{
	if
	:: atomic { state == BUSY_PENDING -> state = SIGNALLED }; own_signal = 1; interrupt = 1
	:: atomic { state == BUSY -> state = IDLE };
		if
		:: state == SIGNALLED -> own_signal = 1; interrupt = 1
		:: state != SIGNALLED
		fi
	fi
}

proctype listener()
{
	bit own_signal, found;

end_idle:
	do
	:: atomic { interrupt -> interrupt = 0 };
		/* ProcessIncomingNotify(): an empty transaction */
#ifdef FAILING
		if
		:: failures < 1 ->
			failures++;
			/* herald_session_end_transaction(false) */
#ifndef ABORT_KEEPS_REASONS
			/* The signal is used up: the next reason sends another [S1]. */
			reasons = 0;
#endif
			if
			:: state == SIGNALLED -> own_signal = 1; interrupt = 1
			:: state != SIGNALLED
			fi;
			goto end_idle
		:: true
		fi;
#endif
		/* herald_deliver() */
#ifdef TAKE_AFTER_READING
		found = reasons || own_signal;
#else
		atomic { found = reasons || own_signal; reasons = 0; own_signal = 0 };	/* [S1] */
#endif
		if
		:: found ->
			if
			:: atomic { state == PENDING || state == SIGNALLED -> state = IDLE }	/* has read */
			:: state != PENDING && state != SIGNALLED
			fi
		:: else
		fi;
#ifdef TAKE_AFTER_READING
		atomic { reasons = 0; own_signal = 0 };
#endif
		found = 0
	:: statements < 1 ->
		statements++;
		reasons = 0;				/* herald_session_statement() */
		atomic {
			if
			:: state == IDLE -> state = BUSY
			:: else -> state = BUSY_PENDING
			fi
		};
		end_transaction()
	:: exits < 1 ->
		exits++;
		/* herald_session_leave() */
		state = FREE;
		slot_pid = 0;
		reasons = 0;
		atomic { process = 0; interrupt = 0; own_signal = 0 };
		process = exits + 1;
		/* herald_session_join() of the next owner [S2] */
#ifdef CLEAR_BEFORE_PID
		reasons = 0;
		slot_pid = exits + 1;
#else
		slot_pid = exits + 1;
		reasons = 0;
#endif
		state = BUSY;
		end_transaction()
	od
}

init
{
	byte i;

	atomic {
		do
		:: i < WAKERS -> run waker(); i++
		:: else -> break
		od;
		run listener()
	};
	timeout;
	assert(state == IDLE);
end_checked:
	false
}
#endif
