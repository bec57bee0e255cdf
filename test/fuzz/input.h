/*-------------------------------------------------------------------------
 *
 * input.h
 *	  The input of a fuzzer, taken byte by byte; and what has to be true.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_FUZZ_INPUT_H
#define HERALD_FUZZ_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LENGTH_OF(array)	(sizeof(array) / sizeof((array)[0]))

/* The input, and the position up to which it has been used. */
static struct
{
	const uint8_t *at;
	const uint8_t *end;
}			input;

static inline void
must(bool condition, const char *what)
{
	if (!condition)
	{
		fprintf(stderr, "not so: %s\n", what);
		abort();
	}
}

static inline unsigned
next_byte(void)
{
	return input.at < input.end ? *input.at++ : 0;
}

static inline unsigned
next_below(unsigned limit)
{
	return next_byte() % limit;
}

/* A number from as many bytes. */
static inline uint64_t
next_number(unsigned bytes)
{
	uint64_t	number = 0;

	while (bytes-- > 0)
		number = number << 8 | next_byte();
	return number;
}

#endif							/* HERALD_FUZZ_INPUT_H */
