/*
 * client.c
 *		Common functions of the load clients, see client.h.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "client.h"

#define NS_PER_S UINT64_C(1000000000)

/* Prints a message to stderr, after the program's name, and ends the program with status 1. */
void
die(const char *format,...)
{
	va_list		arguments;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

/* Returns zeroed memory, or ends the program. */
void *
allocate(size_t count, size_t size)
{
	void	   *memory = calloc(count, size);

	if (!memory && count > 0)
		die("out of memory");
	return memory;
}

uint64_t
read_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
}

/* Monotonic time. */
uint64_t
clock_ns(void)
{
	return read_clock_ns(CLOCK_MONOTONIC);
}

/* Returns the value of an option, or ends the program. */
int
whole_number(const char *option, const char *text, int min, int max)
{
	char	   *end;
	long		value = strtol(text, &end, 10);

	if (*text == 0 || *end != 0 || value < min || value > max)
		die("--%s takes a whole number from %d to %d, not \"%s\"", option, min, max, text);
	return (int) value;
}

/* As whole_number(). */
double
number_above_zero(const char *option, const char *text)
{
	char	   *end;
	double		value = strtod(text, &end);

	if (*text == 0 || *end != 0 || !(value > 0))
		die("--%s takes a number above 0, not \"%s\"", option, text);
	return value;
}

/* For qsort() of floats. */
int
compare_times(const void *a, const void *b)
{
	float		left = *(const float *) a;
	float		right = *(const float *) b;

	return (left > right) - (left < right);
}

/* Raises the limit of open files to `files`, if it is lower. */
void
raise_file_limit(int files)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		die("getrlimit: %s", strerror(errno));
	if (limit.rlim_cur >= (rlim_t) files)
		return;
	limit.rlim_cur = (rlim_t) files;
	if (limit.rlim_max < limit.rlim_cur)
		limit.rlim_max = limit.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		die("%d open files are needed: %s", files, strerror(errno));
}
