/*-------------------------------------------------------------------------
 *
 * wal_message.h
 *	  Writes the messages that pg_herald puts into the WAL.  Reads messages, which may be forged.
 *
 * A message is JSON in the database's encoding, in one form only: without white space, with the keys in the order
 * shown here, and with 16 lower-case digits in each hexadecimal number.
 *
 *		{"version":1,"kind":"notifications","run":"0123456789abcdef","place":"00000000001a2b38",
 *		 "part":1,"first":"0000000000000000","xid":"00000000000002f1","role":16384,
 *		 "notifications":[{"channel":"c","payload":"p"}],"last":true}
 *		{"version":1,"kind":"anchor","run":"0123456789abcdef"}
 *		{"version":1,"kind":"setting","run":"0123456789abcdef","channel":"orders*","logged":true}
 *
 * The notifications of a transaction are in parts 1, 2 and so on.  In a string, a backslash precedes each quote and
 * each backslash, and a control character is written as \b, \f, \n, \r, \t or \u00xx; nothing else is escaped.  So
 * there is exactly one text for each content, and a text in any other form was not written by pg_herald.
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

#include "sender.h"

/*
 * Maximum number of bytes that the herald_wal_write_...() functions write for a head, a tail, an anchor and a setting.
 */
#define HERALD_WAL_HEAD_MAX			208
#define HERALD_WAL_TAIL_MAX			16
#define HERALD_WAL_ANCHOR_MAX		64
#define HERALD_WAL_SETTING_MAX(pattern_length)	(96 + 6 * (size_t) (pattern_length))

/*
 * Maximum number of bytes of a channel, or of a setting's pattern.  An entry of the queue has the same maximum for its
 * channel.  The minimum is 1.
 */
#define HERALD_WAL_CHANNEL_MAX		UINT16_MAX

typedef enum HeraldWalKind
{
	HERALD_WAL_NOTIFICATIONS,	/* one part of a transaction's notifications */
	HERALD_WAL_ANCHOR,			/* names the run of the server that has
								 * written the WAL at this place */
	HERALD_WAL_SETTING			/* the transaction switches the logging of a
								 * channel or prefix on or off */
} HeraldWalKind;

typedef enum HeraldWalResult
{
	HERALD_WAL_VALID,
	HERALD_WAL_NEWER,			/* a message of a later version, which cannot
								 * be read */
	HERALD_WAL_INVALID			/* the text is not in the form described at
								 * the top of this file */
} HeraldWalResult;

/* A message that was read.  Fields that do not belong to the message's kind are zero. */
typedef struct HeraldWalMessage
{
	HeraldWalKind kind;
	uint64_t	run;			/* the run of the server that wrote the
								 * message */

	/* Fields of HERALD_WAL_NOTIFICATIONS. */
	uint64_t	place;			/* the place of the batch in the queue of
								 * `run`; 0 if this part is not the last part */
	uint64_t	first;			/* where the record of part 1 begins in the
								 * WAL; 0 in part 1 */
	uint32_t	part;			/* the part's number; the first part has 1 */
	HeraldSender sender;
	bool		is_last;

	/* Field of HERALD_WAL_SETTING. */
	bool		logged;

	/*
	 * For herald_wal_next(): the unread rest of the text, which belongs to
	 * the caller.
	 */
	const char *next;
	const char *end;
} HeraldWalMessage;

/* Both strings end with a NUL.  The lengths do not include the NUL. */
typedef struct HeraldWalNotification
{
	const char *channel;
	size_t		channel_length;
	const char *payload;
	size_t		payload_length;
} HeraldWalNotification;

/*
 * Write a part: its head, then its notifications, then its tail.  Each herald_wal_write_...() function returns the
 * number of bytes that it has written.  A head has the place 0.  For the last part, the caller sets the place later:
 * herald_wal_set_place() takes a text that begins with a head.  `first` is 0 in part 1, and only there.  sender.role
 * must not be 0.  is_first: is the notification the first one of its part?  Strings have no NUL within their lengths.
 */
extern size_t herald_wal_write_head(char *to, uint64_t run, uint32_t part, uint64_t first, HeraldSender sender);
extern size_t herald_wal_write_notification(char *to, bool is_first,
											const char *channel, size_t channel_length,
											const char *payload, size_t payload_length);
extern size_t herald_wal_write_tail(char *to, bool is_last);
extern void herald_wal_set_place(char *text, uint64_t place);

/*
 * Returns how many bytes herald_wal_write_notification() writes at most, including the comma before the notification.
 */
extern size_t herald_wal_notification_max(size_t channel_length, size_t payload_length);

/* Write an anchor or a setting.  Return the number of bytes written. */
extern size_t herald_wal_write_anchor(char *to, uint64_t run);
extern size_t herald_wal_write_setting(char *to, uint64_t run,
									   const char *pattern, size_t pattern_length, bool logged);

/*
 * Check a whole text, which may contain anything, and read its fields.  If the text is valid, *message is set, and
 * points into the text.  This function does not check whether the strings are valid in the database's encoding, or
 * whether they are longer than the server allows.
 */
extern HeraldWalResult herald_wal_scan(const char *text, size_t length, HeraldWalMessage *message);

/*
 * Get the message's next notification.  Returns false if there are no more notifications.  The strings are put into
 * `buffer`, which must have at least as many bytes as the text.  A setting has one notification, with the setting's
 * pattern as its channel and an empty payload.
 */
extern bool herald_wal_next(HeraldWalMessage *message, HeraldWalNotification *notification, char *buffer);

#endif							/* HERALD_WAL_MESSAGE_H */
