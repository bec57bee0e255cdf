/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  The lock around the queue; counts acquisitions and waits.
 *
 * A waiting exclusive locker goes before shared lockers that come later, as with
 * the server's locks.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void
check(int error)
{
	if (error != 0)
	{
		fprintf(stderr, "inval: a lock failed with error %d\n", error);
		exit(1);
	}
}

void
lock_init(Shared *shared)
{
	pthread_rwlockattr_t attributes;

	check(pthread_rwlockattr_init(&attributes));
	check(pthread_rwlockattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
	check(pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
	check(pthread_rwlock_init(&shared->lock, &attributes));
	check(pthread_rwlockattr_destroy(&attributes));
}

uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * UINT64_C(1000000000) + (uint64_t) now.tv_nsec;
}

static void
wait_for(Backend *self, int (*acquire) (pthread_rwlock_t *))
{
	uint64_t	began_ns = clock_ns();

	check(acquire(&self->shared->lock));
	count(&self->counters->waits, 1);
	count(&self->counters->waited_ns, clock_ns() - began_ns);
}

void
lock_shared(Backend *self)
{
	if (pthread_rwlock_tryrdlock(&self->shared->lock) != 0)
		wait_for(self, pthread_rwlock_rdlock);
	count(&self->counters->shared, 1);
}

void
lock_exclusive(Backend *self)
{
	if (pthread_rwlock_trywrlock(&self->shared->lock) != 0)
		wait_for(self, pthread_rwlock_wrlock);
	count(&self->counters->exclusive, 1);
}

void
lock_release(Backend *self)
{
	check(pthread_rwlock_unlock(&self->shared->lock));
}
