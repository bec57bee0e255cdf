/*
 * client.h
 *		Common functions of the load clients: exit with a message, clocks,
 *		numbers from the command line, and comparison of measured times.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

extern void die(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));
extern void *allocate(size_t count, size_t size);
extern uint64_t read_clock_ns(clockid_t clock);
extern uint64_t clock_ns(void);
extern int	whole_number(const char *option, const char *text, int min, int max);
extern double number_above_zero(const char *option, const char *text);
extern int	compare_times(const void *a, const void *b);
extern void raise_file_limit(int files);

#endif
