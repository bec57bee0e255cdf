/*-------------------------------------------------------------------------
 *
 * wal_message.h
 *	  The messages that pg_herald puts into the WAL: writes them, and reads texts that may be forged.
 *
 * A message is JSON in the database's encoding, in one form only: no white space, the keys in
 * this order, hexadecimal numbers of 16 lower-case digits.
 *
 *		{"version":1,"kind":"notifications","run":"0123456789abcdef","place":"00000000001a2b38",
 *		 "part":1,"first":"0000000000000000","notifications":[{"channel":"c","payload":"p"}],
 *		 "last":true}
 *		{"version":1,"kind":"anchor","run":"0123456789abcdef"}
 *		{"version":1,"kind":"setting","run":"0123456789abcdef","channel":"orders*","logged":true}
 *
 * The notifications of a transaction are in parts 1, 2 and so on.  In a string, a backslash
 * comes before a quote or a backslash, and control characters are \b, \f, \n, \r, \t or \u00xx;
 * nothing else is escaped.  So there is one text for each content, and a text in any other form
 * was not written by pg_herald.
 *
 * Texts have no NUL at the end.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_MESSAGE_H
#define HERALD_WAL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum bytes of a head, a tail, an anchor and a setting, as herald_wal_write_...() write them. */
#define HERALD_WAL_HEAD_MAX			160
#define HERALD_WAL_TAIL_MAX			16
#define HERALD_WAL_ANCHOR_MAX		64
#define HERALD_WAL_SETTING_MAX(pattern_length)	(96 + 6 * (size_t) (pattern_length))

/* Maximum bytes of a channel or a setting's pattern, as in an entry of the queue.  The minimum is 1. */
#define HERALD_WAL_CHANNEL_MAX		UINT16_MAX

typedef enum HeraldWalKind
{
	HERALD_WAL_NOTIFICATIONS,	/* one part of a transaction's notifications */
	HERALD_WAL_ANCHOR,			/* shows readers which run wrote the WAL */
	HERALD_WAL_SETTING			/* from its commit on, a channel or prefix is
								 * logged, or is not */
} HeraldWalKind;

typedef enum HeraldWalResult
{
	HERALD_WAL_VALID,
	HERALD_WAL_NEWER,			/* of a later version: cannot be read */
	HERALD_WAL_INVALID			/* not in the form above */
} HeraldWalResult;

/* A message that was read.  Fields of other kinds are zero. */
typedef struct HeraldWalMessage
{
	HeraldWalKind kind;
	uint64_t	run;			/* the run of the server that wrote the
								 * message */

	/* Fields of notifications. */
	uint64_t	place;			/* the place of the batch in the server's
								 * queue; 0 if this is not the last part */
	uint64_t	first;			/* where part 1 begins in the WAL; 0 in part 1 */
	uint32_t	part;			/* the part's number, from 1 on */
	bool		is_last;

	/* Field of a setting. */
	bool		logged;

	/* For herald_wal_next(): the rest of the caller's text. */
	const char *next;
	const char *end;
} HeraldWalMessage;

/* Both strings end with a NUL, which their lengths do not include. */
typedef struct HeraldWalNotification
{
	const char *channel;
	size_t		channel_length;
	const char *payload;
	size_t		payload_length;
} HeraldWalNotification;

/*
 * Write a part: its head, its notifications, and its tail.  Each function returns the number of
 * bytes that it has written.  The place is zero until herald_wal_set_place() sets it in a text
 * that begins with a head.  Only the last part gets a place; `first` is zero in part 1 only.
 * Strings have no NUL within their lengths.
 */
extern size_t herald_wal_write_head(char *to, uint64_t run, uint32_t part, uint64_t first);
extern size_t herald_wal_write_notification(char *to, bool is_first,
											const char *channel, size_t channel_length,
											const char *payload, size_t payload_length);
extern size_t herald_wal_write_tail(char *to, bool is_last);
extern void herald_wal_set_place(char *text, uint64_t place);

/* Maximum bytes of a notification, including the comma before it. */
extern size_t herald_wal_notification_max(size_t channel_length, size_t payload_length);

/* Write an anchor or a setting; return the number of bytes written. */
extern size_t herald_wal_write_anchor(char *to, uint64_t run);
extern size_t herald_wal_write_setting(char *to, uint64_t run,
									   const char *pattern, size_t pattern_length, bool logged);

/*
 * Check a whole text, which may contain anything, and read its fields.  If the text is valid,
 * the message is set and points into the text.  Not checked: whether the strings are valid in
 * the database's encoding, and whether they exceed the server's own limits of their lengths.
 */
extern HeraldWalResult herald_wal_scan(const char *text, size_t length, HeraldWalMessage *message);

/*
 * Get the message's next notification.  False: there are no more.  The strings are put into
 * `buffer`, which has at least as many bytes as the text.  A setting has one notification, with
 * its pattern as the channel and an empty payload.
 */
extern bool herald_wal_next(HeraldWalMessage *message, HeraldWalNotification *notification, char *buffer);

#endif							/* HERALD_WAL_MESSAGE_H */
