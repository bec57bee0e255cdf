/*
 * Shifts the clock of a program that runs with this library preloaded: by the number of seconds that the
 * file JUMPING_CLOCK contains, a 64-bit integer, which may change at any time. The monotonic clock stays
 * as it is, as when an administrator sets the time.
 *
 * Debian's libfaketime 0.9.10 is of no use here: where it leaves the monotonic clock alone, Python's sleep() fails.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *shift_s;

__attribute__((constructor)) static void
map_file(void)
{
	int			file = open(getenv("JUMPING_CLOCK"), O_RDONLY);

	shift_s = mmap(NULL, sizeof(*shift_s), PROT_READ, MAP_SHARED, file, 0);
	if (shift_s == MAP_FAILED)
		abort();
	close(file);
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result = syscall(SYS_clock_gettime, clock, now);

	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && shift_s)
		now->tv_sec += *shift_s;
	return result;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &precise);
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *now)
{
	struct timespec precise;

	clock_gettime(CLOCK_REALTIME, &precise);
	if (now)
		*now = precise.tv_sec;
	return precise.tv_sec;
}
