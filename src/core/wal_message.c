/*-------------------------------------------------------------------------
 *
 * wal_message.c
 *	  Writes the messages that pg_herald puts into the WAL.  Reads messages, which may be forged.
 *
 * Other programs can write messages with our prefix, so a text may contain anything.  The reader accepts only texts
 * that the writer below can produce: each take function compares the text with exactly one form, and never looks
 * beyond the text's end.  herald_wal_scan() goes through the whole text without storing strings.  herald_wal_next()
 * goes through the text again, with the same functions and all their checks, and stores the strings.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_message.h"

#include <assert.h>
#include <string.h>

#define VERSION				1
#define HEX_DIGITS			16	/* digits of a hexadecimal number */

/* The fixed bytes around the values of a message. */
#define TEXT_VERSION		"{\"version\":"
#define TEXT_KIND			",\"kind\":\""
#define TEXT_RUN			"\",\"run\":\""
#define TEXT_PLACE			"\",\"place\":\""
#define TEXT_PART			"\",\"part\":"
#define TEXT_FIRST			",\"first\":\""
#define TEXT_XID			"\",\"xid\":\""
#define TEXT_ROLE			"\",\"role\":"
#define TEXT_LIST			",\"notifications\":["
#define TEXT_CHANNEL		"{\"channel\":"
#define TEXT_PAYLOAD		",\"payload\":"
#define TEXT_LAST			"],\"last\":"
#define TEXT_PATTERN		"\",\"channel\":"
#define TEXT_LOGGED			",\"logged\":"
#define TEXT_ANCHOR_END		"\"}"

/* Offset of the place in the text of a part. */
#define PLACE_OFFSET		(strlen(TEXT_VERSION "1" TEXT_KIND "notifications" TEXT_RUN) + HEX_DIGITS + strlen(TEXT_PLACE))

/* Maximum number of bytes of a text that stand for one byte of a string: the length of \u00xx. */
#define ESCAPED_MAX			strlen("\\u00xx")

static const char *const kind_names[] = {
	[HERALD_WAL_NOTIFICATIONS] = "notifications",
	[HERALD_WAL_ANCHOR] = "anchor",
	[HERALD_WAL_SETTING] = "setting",
};

static const char hex_digits[] = "0123456789abcdef";

/* The characters with an escape of two bytes, and the second byte of each escape. */
static const char escaped[] = "\"\\\b\f\n\r\t";
static const char escapes[] = "\"\\bfnrt";

static_assert(sizeof(escaped) == sizeof(escapes), "one escape for each character");

static char *put_start(char *to, HeraldWalKind kind, uint64_t run);
static char *put(char *to, const char *text);
static char *put_bool(char *to, bool value);
static char *put_number(char *to, uint32_t number);
static char *put_hex(char *to, uint64_t number, int digits);
static char *put_string(char *to, const char *string, size_t length);
static bool take_kind(HeraldWalMessage *message);
static bool take_part(HeraldWalMessage *message);
static bool take_list(HeraldWalMessage *message);
static bool take_setting(HeraldWalMessage *message);
static bool take_notification(HeraldWalMessage *message, HeraldWalNotification *notification, char *to);
static bool take_channel(HeraldWalMessage *message, HeraldWalNotification *notification, char *to);
static bool take(HeraldWalMessage *message, const char *text);
static bool take_bool(HeraldWalMessage *message, bool *value);
static bool take_number(HeraldWalMessage *message, uint32_t *number);
static bool take_hex(HeraldWalMessage *message, uint64_t *number, int digits);
static bool take_string(HeraldWalMessage *message, char *to, size_t *length);
static bool take_escape(HeraldWalMessage *message, char *character);
static const char *find_escape(const char *among, char character);


/* ---- writing ---- */

size_t
herald_wal_write_head(char *to, uint64_t run, uint32_t part, uint64_t first, HeraldSender sender)
{
	char	   *at = put_start(to, HERALD_WAL_NOTIFICATIONS, run);

	assert(part > 0 && (part == 1) == (first == 0) && sender.role > 0);
	at = put_hex(put(at, TEXT_PLACE), 0, HEX_DIGITS);
	at = put_number(put(at, TEXT_PART), part);
	at = put_hex(put(at, TEXT_FIRST), first, HEX_DIGITS);
	at = put_hex(put(at, TEXT_XID), sender.xid, HEX_DIGITS);
	at = put_number(put(at, TEXT_ROLE), sender.role);
	return (size_t) (put(at, TEXT_LIST) - to);
}

size_t
herald_wal_notification_max(size_t channel_length, size_t payload_length)
{
	return strlen("," TEXT_CHANNEL "\"\"" TEXT_PAYLOAD "\"\"" "}") + ESCAPED_MAX * (channel_length + payload_length);
}

size_t
herald_wal_write_notification(char *to, bool is_first,
							  const char *channel, size_t channel_length,
							  const char *payload, size_t payload_length)
{
	char	   *at = put(to, is_first ? TEXT_CHANNEL : "," TEXT_CHANNEL);

	assert(channel_length > 0 && channel_length <= HERALD_WAL_CHANNEL_MAX);
	at = put_string(at, channel, channel_length);
	at = put_string(put(at, TEXT_PAYLOAD), payload, payload_length);
	return (size_t) (put(at, "}") - to);
}

size_t
herald_wal_write_tail(char *to, bool is_last)
{
	return (size_t) (put(put_bool(put(to, TEXT_LAST), is_last), "}") - to);
}

void
herald_wal_set_place(char *text, uint64_t place)
{
	(void) put_hex(text + PLACE_OFFSET, place, HEX_DIGITS);
}

size_t
herald_wal_write_anchor(char *to, uint64_t run)
{
	return (size_t) (put(put_start(to, HERALD_WAL_ANCHOR, run), TEXT_ANCHOR_END) - to);
}

size_t
herald_wal_write_setting(char *to, uint64_t run, const char *pattern, size_t pattern_length, bool logged)
{
	char	   *at = put_start(to, HERALD_WAL_SETTING, run);

	assert(pattern_length > 0 && pattern_length <= HERALD_WAL_CHANNEL_MAX);
	at = put_string(put(at, TEXT_PATTERN), pattern, pattern_length);
	at = put_bool(put(at, TEXT_LOGGED), logged);
	return (size_t) (put(at, "}") - to);
}

/*
 * Write the start of a message, which is the same for all kinds.  Each of the put functions returns the end of the
 * text that it has written.
 */
static char *
put_start(char *to, HeraldWalKind kind, uint64_t run)
{
	to = put_number(put(to, TEXT_VERSION), VERSION);
	to = put(put(to, TEXT_KIND), kind_names[kind]);
	return put_hex(put(to, TEXT_RUN), run, HEX_DIGITS);
}

static char *
put(char *to, const char *text)
{
	while (*text != '\0')
		*to++ = *text++;
	return to;
}

static char *
put_bool(char *to, bool value)
{
	return put(to, value ? "true" : "false");
}

static char *
put_number(char *to, uint32_t number)
{
	if (number >= 10)
		to = put_number(to, number / 10);
	*to++ = (char) ('0' + number % 10);
	return to;
}

static char *
put_hex(char *to, uint64_t number, int digits)
{
	for (int i = digits; i-- > 0; number >>= 4)
		to[i] = hex_digits[number & 15];
	return to + digits;
}

static char *
put_string(char *to, const char *string, size_t length)
{
	*to++ = '"';
	for (size_t i = 0; i < length; i++)
	{
		char		character = string[i];
		const char *found = find_escape(escaped, character);

		assert(character != '\0');
		if ((unsigned char) character >= 0x20 && character != '"' && character != '\\')
			*to++ = character;
		else if (found != NULL)
		{
			*to++ = '\\';
			*to++ = escapes[found - escaped];
		}
		else
			to = put_hex(put(to, "\\u00"), (unsigned char) character, 2);
	}
	*to++ = '"';
	return to;
}


/* ---- reading ---- */

HeraldWalResult
herald_wal_scan(const char *text, size_t length, HeraldWalMessage *message)
{
	HeraldWalMessage found = {.next = text,.end = text + length};
	const char *content;
	uint32_t	version;
	bool		is_valid = false;

	if (!take(&found, TEXT_VERSION) || !take_number(&found, &version))
		return HERALD_WAL_INVALID;
	if (version != VERSION)
		return take(&found, ",") ? HERALD_WAL_NEWER : HERALD_WAL_INVALID;
	if (!take(&found, TEXT_KIND) || !take_kind(&found) ||
		!take(&found, TEXT_RUN) || !take_hex(&found, &found.run, HEX_DIGITS))
		return HERALD_WAL_INVALID;

	content = found.end;
	switch (found.kind)
	{
		case HERALD_WAL_NOTIFICATIONS:
			is_valid = take_part(&found);
			content = found.next;
			is_valid = is_valid && take_list(&found);
			break;
		case HERALD_WAL_ANCHOR:
			is_valid = take(&found, TEXT_ANCHOR_END);
			break;
		case HERALD_WAL_SETTING:
			is_valid = take(&found, TEXT_PATTERN);
			content = found.next;
			is_valid = is_valid && take_setting(&found);
			break;
	}
	if (!is_valid || found.next != found.end)
		return HERALD_WAL_INVALID;
	found.next = content;
	*message = found;
	return HERALD_WAL_VALID;
}

bool
herald_wal_next(HeraldWalMessage *message, HeraldWalNotification *notification, char *buffer)
{
	HeraldWalNotification empty = {buffer, 0, "", 0};

	*notification = empty;
	if (message->kind == HERALD_WAL_SETTING)
		return take_channel(message, notification, buffer); /* the pattern, the only
															 * string of a setting */
	(void) take(message, ",");
	return take_notification(message, notification, buffer);
}

/*
 * Each of the take functions takes one element from the start of the unread text, and returns false if the unread text
 * does not begin with this element.
 */
static bool
take_kind(HeraldWalMessage *message)
{
	for (int kind = 0; kind <= HERALD_WAL_SETTING; kind++)
		if (take(message, kind_names[kind]))
		{
			message->kind = (HeraldWalKind) kind;
			return true;
		}
	return false;
}

/* Take everything in a part's head that comes after the run. */
static bool
take_part(HeraldWalMessage *message)
{
	return take(message, TEXT_PLACE) && take_hex(message, &message->place, HEX_DIGITS) &&
		take(message, TEXT_PART) && take_number(message, &message->part) &&
		take(message, TEXT_FIRST) && take_hex(message, &message->first, HEX_DIGITS) &&
		take(message, TEXT_XID) && take_hex(message, &message->sender.xid, HEX_DIGITS) &&
		take(message, TEXT_ROLE) && take_number(message, &message->sender.role) &&
		take(message, TEXT_LIST) &&
		(message->part == 1) == (message->first == 0);
}

/* Take the notifications and the tail of a part. */
static bool
take_list(HeraldWalMessage *message)
{
	HeraldWalNotification notification;

	if (!take(message, TEXT_LAST))
	{
		do
			if (!take_notification(message, &notification, NULL))
				return false;
		while (take(message, ","));
		if (!take(message, TEXT_LAST))
			return false;
	}
	return take_bool(message, &message->is_last) && take(message, "}") &&
		(message->is_last || message->place == 0);
}

static bool
take_setting(HeraldWalMessage *message)
{
	HeraldWalNotification pattern;

	return take_channel(message, &pattern, NULL) &&
		take(message, TEXT_LOGGED) && take_bool(message, &message->logged) && take(message, "}");
}

/* to: the buffer for the strings; NULL: the strings are only checked. */
static bool
take_notification(HeraldWalMessage *message, HeraldWalNotification *notification, char *to)
{
	if (!take(message, TEXT_CHANNEL) || !take_channel(message, notification, to) || !take(message, TEXT_PAYLOAD))
		return false;
	if (to)
		to += notification->channel_length + 1;
	notification->payload = to;
	return take_string(message, to, &notification->payload_length) && take(message, "}");
}

static bool
take_channel(HeraldWalMessage *message, HeraldWalNotification *notification, char *to)
{
	notification->channel = to;
	return take_string(message, to, &notification->channel_length) &&
		notification->channel_length > 0 && notification->channel_length <= HERALD_WAL_CHANNEL_MAX;
}

static bool
take(HeraldWalMessage *message, const char *text)
{
	size_t		length = strlen(text);

	if ((size_t) (message->end - message->next) < length || memcmp(message->next, text, length) != 0)
		return false;
	message->next += length;
	return true;
}

static bool
take_bool(HeraldWalMessage *message, bool *value)
{
	*value = take(message, "true");
	return *value || take(message, "false");
}

/* Take a decimal number from 1 to UINT32_MAX. */
static bool
take_number(HeraldWalMessage *message, uint32_t *number)
{
	uint64_t	value = 0;

	while (message->next < message->end && *message->next >= '0' && *message->next <= '9')
	{
		value = value * 10 + (uint64_t) (*message->next++ - '0');
		if (value == 0 || value > UINT32_MAX)
			return false;
	}
	*number = (uint32_t) value;
	return value > 0;
}

static bool
take_hex(HeraldWalMessage *message, uint64_t *number, int digits)
{
	*number = 0;
	if (message->end - message->next < digits)
		return false;
	while (digits-- > 0)
	{
		const char *found = memchr(hex_digits, *message->next++, sizeof(hex_digits) - 1);

		if (found == NULL)
			return false;
		*number = *number << 4 | (uint64_t) (found - hex_digits);
	}
	return true;
}

/* to: the buffer for the string and a NUL; NULL: the string is only checked. */
static bool
take_string(HeraldWalMessage *message, char *to, size_t *length)
{
	*length = 0;
	if (!take(message, "\""))
		return false;
	while (message->next < message->end)
	{
		char		character = *message->next++;

		if (character == '"')
		{
			if (to)
				*to = '\0';
			return true;
		}
		if ((unsigned char) character < 0x20 || (character == '\\' && !take_escape(message, &character)))
			return false;
		if (to)
			*to++ = character;
		++*length;
	}
	return false;
}

/*
 * Take the part of an escape that follows the backslash.  \u00xx is not valid for a character that has an escape of
 * two bytes.
 */
static bool
take_escape(HeraldWalMessage *message, char *character)
{
	const char *found;
	uint64_t	code;

	if (take(message, "u00"))
	{
		if (!take_hex(message, &code, 2))
			return false;
		*character = (char) code;
		return code > 0 && code < 0x20 && find_escape(escaped, *character) == NULL;
	}
	if (message->next == message->end)
		return false;
	found = find_escape(escapes, *message->next);
	if (found == NULL)
		return false;
	message->next++;
	*character = escaped[found - escapes];
	return true;
}

/* Find the character in `escaped` or `escapes`.  Returns NULL if the character is not there. */
static const char *
find_escape(const char *among, char character)
{
	return character == '\0' ? NULL : strchr(among, character);
}
