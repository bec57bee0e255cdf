/*
 * sequence.c
 *		--check-sequence: checks that every connection receives every sender's
 *		numbers once each and in order.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * A payload is `<sender>:<number>` (any one character between them); senders
 * are numbered from 0, each sender's numbers from 1.  For each connection and
 * sender the check keeps the newest number, and a bit for each of the 64
 * numbers up to it: a late number is out of order if its bit is clear, and a
 * duplicate if it is set.  Numbers older than these 64 count as out of order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "listen.h"

#define WINDOW 64

struct SequenceCheck
{
	uint64_t	senders;
	uint64_t	received;
	uint64_t	out_of_order;
	uint64_t	duplicated;
	uint64_t	missing;		/* gaps not filled by a late number */
	uint64_t	malformed;		/* payload not in this form, or wrong sender number */
	Sequence	sequences[];	/* [connection][sender] */
};

/* Returns an empty check for these numbers of connections and senders. */
SequenceCheck *
sequence_create(int connections, int senders)
{
	size_t		cells = (size_t) connections * (size_t) senders;
	SequenceCheck *check = allocate(1, sizeof(SequenceCheck) + cells * sizeof(Sequence));

	check->senders = (uint64_t) senders;
	return check;
}

/* Notes one notification (a NotificationHandler). */
void
sequence_note(void *context, const Connection *conn, const char *payload, uint64_t now_ns)
{
	SequenceCheck *check = context;
	char	   *rest;
	uint64_t	sender = strtoull(payload, &rest, 10);
	uint64_t	number = *rest ? strtoull(rest + 1, NULL, 10) : 0;
	Sequence   *sequence;

	(void) now_ns;
	check->received++;
	if (rest == payload || number == 0 || sender >= check->senders)
	{
		check->malformed++;
		return;
	}

	sequence = &check->sequences[conn->number * check->senders + sender];
	if (number > sequence->newest)
	{
		uint64_t	step = number - sequence->newest;

		check->missing += step - 1;
		sequence->seen = (step < WINDOW ? sequence->seen << step : 0) | 1;
		sequence->newest = number;
	}
	else
	{
		uint64_t	age = sequence->newest - number;
		uint64_t	bit = age < WINDOW ? UINT64_C(1) << age : 0;

		if (sequence->seen & bit)
			check->duplicated++;
		else
		{
			check->out_of_order++;
			sequence->seen |= bit;
			if (bit && check->missing > 0)
				check->missing--;
		}
	}
}

/* Restores the state after sequence_create(). */
void
sequence_reset(SequenceCheck *check, int connections)
{
	uint64_t	senders = check->senders;

	memset(check, 0, sizeof(SequenceCheck) + (size_t) connections * senders * sizeof(Sequence));
	check->senders = senders;
}

/* Prints the counts as the value of a JSON key. */
void
sequence_print(const SequenceCheck *check)
{
	printf(", \"sequence\": {\"received\": %" PRIu64 ", \"out_of_order\": %" PRIu64
		   ", \"duplicated\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"malformed\": %" PRIu64 "}",
		   check->received, check->out_of_order, check->duplicated, check->missing,
		   check->malformed);
}
