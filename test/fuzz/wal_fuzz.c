/*-------------------------------------------------------------------------
 *
 * wal_fuzz.c
 *	  Fuzzes the reader of messages in the WAL, for libFuzzer.
 *
 * The input is a text as it is; or it says which message to write, as a sender
 * does, and how to damage the text afterwards.
 *
 * A text that was not damaged is valid, and has the fields that were written.
 * Any text that is valid is written in the same bytes from what was read of
 * it; and no byte outside of a text is read.
 *
 * All memory is allocated to the byte, for the address sanitizer.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "input.h"

#include "../unit/wal.h"

#define NOTIFICATIONS_MAX	4
#define STRING_MAX			24
#define DAMAGES_MAX			4
#define TEXT_MAX			4096	/* enough for the longest text, with all damages */

/* The text, and what was written, if it was not damaged. */
static char text[TEXT_MAX];
static size_t text_length;
static HeraldWalMessage written;
static int	notifications_written;
static bool damaged;

static uint64_t
next_any_number(void)
{
	return next_number(next_below(9));
}

/* A string without a NUL, of at least this length. */
static size_t
next_string(char *to, size_t length_min)
{
	size_t		length = length_min + next_below(STRING_MAX);

	for (size_t i = 0; i < length; i++)
	{
		to[i] = (char) next_byte();
		if (to[i] == '\0')
			to[i] = 'x';
	}
	return length;
}


/* ---- writing ---- */

static size_t
write_part(char *to)
{
	size_t		length;
	int			count = (int) next_below(NOTIFICATIONS_MAX + 1);

	written.kind = HERALD_WAL_NOTIFICATIONS;
	written.part = (uint32_t) next_any_number();
	written.first = next_any_number();
	if (written.part <= 1 || written.first == 0)
	{
		written.part = 1;
		written.first = 0;
	}
	written.is_last = next_below(2) != 0;
	written.place = written.is_last ? next_any_number() : 0;

	written.sender.xid = next_any_number();
	written.sender.role = (uint32_t) next_any_number();
	if (written.sender.role == 0)
		written.sender.role = 1;
	length = herald_wal_write_head(to, written.run, written.part, written.first, written.sender);
	for (; notifications_written < count; notifications_written++)
	{
		char		channel[STRING_MAX + 1];
		char		payload[STRING_MAX];
		size_t		channel_length = next_string(channel, 1);
		size_t		payload_length = next_string(payload, 0);

		length += herald_wal_write_notification(to + length, notifications_written == 0, channel, channel_length,
												payload, payload_length);
	}
	length += herald_wal_write_tail(to + length, written.is_last);
	herald_wal_set_place(to, written.place);
	return length;
}

static size_t
write_setting(char *to)
{
	char		pattern[STRING_MAX + 1];
	size_t		length = next_string(pattern, 1);

	written.kind = HERALD_WAL_SETTING;
	written.logged = next_below(2) != 0;
	notifications_written = 1;
	return herald_wal_write_setting(to, written.run, pattern, length, written.logged);
}

static void
write_message(void)
{
	written.run = next_any_number();
	switch (next_below(4))
	{
		case 0:
			written.kind = HERALD_WAL_ANCHOR;
			text_length = herald_wal_write_anchor(text, written.run);
			break;
		case 1:
			text_length = write_setting(text);
			break;
		default:
			text_length = write_part(text);
	}
}

/* Replace bytes by others, or by what other programs might write. */
static void
damage(void)
{
	static const char *const tokens[] = {
		"", "\\", "\\u", "\\u00", "\\u0041", "\\u0008", "\\u001F", "\\u001f", "\\u0000", "\\/", "\\n", "\n", "\"", "0", " ",
		",", "[", "]", "{", "}", "\"}", "true", "false", "null", "2,", "18446744073709551617", "{\"channel\":",
	};
	size_t		at = next_number(2) % (text_length + 1);
	size_t		removed = next_below(4);
	unsigned	choice = next_byte();
	char		byte = (char) next_byte();
	const char *put = choice < LENGTH_OF(tokens) ? tokens[choice] : &byte;
	size_t		put_length = choice < LENGTH_OF(tokens) ? strlen(put) : 1;

	damaged = true;
	if (removed > text_length - at)
		removed = text_length - at;
	memmove(text + at + put_length, text + at + removed, text_length - at - removed);
	memcpy(text + at, put, put_length);
	text_length += put_length - removed;
	if (choice == UINT8_MAX)
		text_length = at;
}


/* ---- reading ---- */

static void
check_written(const HeraldWalMessage *message, const char *at)
{
	HeraldWalMessage rest = *message;
	HeraldWalNotification found;
	char	   *buffer = malloc(text_length);
	int			notifications = 0;

	while (herald_wal_next(&rest, &found, buffer))
	{
		must(found.channel[found.channel_length] == '\0' && found.payload[found.payload_length] == '\0',
			 "strings end with a NUL");
		must(++notifications <= (int) text_length, "a list comes to an end");
	}
	must(at <= rest.next && rest.next <= at + text_length, "what is left lies in the text");
	free(buffer);
	if (damaged)
		return;
	must(message->kind == written.kind && message->run == written.run && message->place == written.place &&
		 message->first == written.first && message->part == written.part &&
		 message->sender.xid == written.sender.xid && message->sender.role == written.sender.role &&
		 message->is_last == written.is_last && message->logged == written.logged,
		 "the fields are those that were written");
	must(notifications == notifications_written, "the notifications are those that were written");
}

static void
check_text(void)
{
	char	   *exact = malloc(text_length + (text_length == 0));
	char	   *again = malloc(WAL_WRITTEN_MAX(text_length));
	HeraldWalMessage message;

	memcpy(exact, text, text_length);
	switch (herald_wal_scan(exact, text_length, &message))
	{
		case HERALD_WAL_VALID:
			check_written(&message, exact);
			must(wal_write_back(message, text_length, again) == text_length &&
				 memcmp(again, text, text_length) == 0, "a valid text is written in the same bytes again");
			break;
		case HERALD_WAL_NEWER:
			must(damaged, "what was written is not newer");
			must(memcmp(text, "{\"version\":", strlen("{\"version\":")) == 0, "a newer text begins with its version");
			break;
		case HERALD_WAL_INVALID:
			must(damaged, "what was written is valid");
			break;
	}
	free(again);
	free(exact);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	input.at = data;
	input.end = data + size;
	memset(&written, 0, sizeof(written));
	notifications_written = 0;
	damaged = size > 0 && *data == '{';
	if (damaged)
	{
		text_length = size < TEXT_MAX ? size : TEXT_MAX;
		memcpy(text, data, text_length);
	}
	else
	{
		write_message();
		for (unsigned damages = next_below(DAMAGES_MAX + 1); damages > 0; damages--)
			damage();
	}
	check_text();
	return 0;
}
