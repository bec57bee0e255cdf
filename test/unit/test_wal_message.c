/*-------------------------------------------------------------------------
 *
 * test_wal_message.c
 *	  Unit tests of wal_message.c: messages in the WAL.
 *
 * Guards: what was written is read with the same contents; there is one text for
 * each content, and every other text is rejected; and no byte outside of a text
 * is read.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "wal.h"

#define UNUSED			__attribute__((unused))
#define LENGTH_OF(array)	(sizeof(array) / sizeof((array)[0]))

#define RUN				UINT64_C(0x0123456789abcdef)
#define PLACE			UINT64_C(0x1a2b38)
#define START			"{\"version\":1,\"kind\":\"notifications\",\"run\":\"0123456789abcdef\""
#define PART(part, first)	",\"place\":\"0000000000000000\",\"part\":" part ",\"first\":\"" first "\"" FROM "\"notifications\":["
#define FROM			",\"xid\":\"0000003f00000abc\",\"role\":16384,"
#define NO_FIRST		"0000000000000000"
#define LIST_AT			START PART("1", NO_FIRST)
#define NOTIFICATION	"{\"channel\":\"c\",\"payload\":\"p\"}"
#define LAST			"],\"last\":true}"
#define SETTING			"{\"version\":1,\"kind\":\"setting\",\"run\":\"0123456789abcdef\",\"channel\":"

static const HeraldSender sender = {UINT64_C(0x3f00000abc), 16384};

static const char last_part[] =
	"{\"version\":1,\"kind\":\"notifications\",\"run\":\"0123456789abcdef\",\"place\":\"00000000001a2b38\",\"part\":1,"
	"\"first\":\"0000000000000000\"" FROM "\"notifications\":[{\"channel\":\"c\",\"payload\":\"p\"},"
	"{\"channel\":\"d\",\"payload\":\"\"}],\"last\":true}";
static const char first_part[] =
	"{\"version\":1,\"kind\":\"notifications\",\"run\":\"0123456789abcdef\",\"place\":\"0000000000000000\",\"part\":1,"
	"\"first\":\"0000000000000000\"" FROM "\"notifications\":[{\"channel\":\"c\",\"payload\":\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\"}],"
	"\"last\":false}";
static const char second_part[] =
	"{\"version\":1,\"kind\":\"notifications\",\"run\":\"0123456789abcdef\",\"place\":\"fffffffffffffff8\",\"part\":2,"
	"\"first\":\"00000000deadbee8\"" FROM "\"notifications\":[],\"last\":true}";
static const char anchor[] = "{\"version\":1,\"kind\":\"anchor\",\"run\":\"0123456789abcdef\"}";
static const char setting[] = SETTING "\"orders*\",\"logged\":true}";
static const char setting_off[] = SETTING "\"\\u0007\",\"logged\":false}";

static const char *const texts[] = {last_part, first_part, second_part, anchor, setting, setting_off};

/* Scan a copy of a text in memory of exactly its size.  Is nothing else written if that is read? */
static HeraldWalResult
scan(const char *text, size_t length)
{
	char	   *copy = malloc(length + (length == 0));
	char	   *written = malloc(WAL_WRITTEN_MAX(length));
	HeraldWalMessage message;
	HeraldWalResult result;

	memcpy(copy, text, length);
	result = herald_wal_scan(copy, length, &message);
	if (result == HERALD_WAL_VALID &&
		(wal_write_back(message, length, written) != length || memcmp(written, text, length) != 0))
		fail_msg("not canonical, but valid: %.*s", (int) length, text);
	free(written);
	free(copy);
	return result;
}

static void
assert_scan(const char *text, HeraldWalResult expected)
{
	if (scan(text, strlen(text)) != expected)
		fail_msg("expected %d: %s", (int) expected, text);
}

/* A message of one notification, with the next one read into `buffer`. */
static HeraldWalMessage
read_one(const char *text, size_t length, HeraldWalNotification *notification, char *buffer)
{
	HeraldWalMessage message;
	HeraldWalMessage rest;
	char		unused[16];

	assert_int_equal(herald_wal_scan(text, length, &message), HERALD_WAL_VALID);
	rest = message;
	assert_true(herald_wal_next(&rest, notification, buffer));
	for (int i = 0; i < 3; i++)
		assert_false(herald_wal_next(&rest, &(HeraldWalNotification) {0}, unused));
	return message;
}

/* Guards: each kind is written as it is documented, and nothing after its end. */
static void
test_written_texts(void **state UNUSED)
{
	char		text[512];
	size_t		length;

	memset(text, '#', sizeof(text));
	length = herald_wal_write_head(text, RUN, 1, 0, sender);
	length += herald_wal_write_notification(text + length, true, "c", 1, "p", 1);
	length += herald_wal_write_notification(text + length, false, "d+", 1, "+", 0);
	length += herald_wal_write_tail(text + length, true);
	herald_wal_set_place(text, PLACE);
	assert_int_equal(length, strlen(last_part));
	assert_memory_equal(text, last_part, length);
	assert_int_equal(text[length], '#');

	length = herald_wal_write_head(text, RUN, 2, 0xdeadbee8, sender);
	length += herald_wal_write_tail(text + length, true);
	herald_wal_set_place(text, 1);
	herald_wal_set_place(text, UINT64_MAX - 7);
	assert_int_equal(length, strlen(second_part));
	assert_memory_equal(text, second_part, length);

	length = herald_wal_write_anchor(text, RUN);
	assert_int_equal(length, strlen(anchor));
	assert_memory_equal(text, anchor, length);
	length = herald_wal_write_setting(text, RUN, "orders*+", 7, true);
	assert_int_equal(length, strlen(setting));
	assert_memory_equal(text, setting, length);
	length = herald_wal_write_setting(text, RUN, "\a", 1, false);
	assert_int_equal(length, strlen(setting_off));
	assert_memory_equal(text, setting_off, length);
}

/* Guards: every field of every kind is read, and a message has no field of another kind. */
static void
test_fields(void **state UNUSED)
{
	HeraldWalMessage message;
	HeraldWalNotification found;
	char		buffer[512];

	memset(&message, 0xA5, sizeof(message));
	assert_int_equal(herald_wal_scan(last_part, strlen(last_part), &message), HERALD_WAL_VALID);
	assert_int_equal(message.kind, HERALD_WAL_NOTIFICATIONS);
	assert_int_equal(message.run, RUN);
	assert_int_equal(message.place, PLACE);
	assert_int_equal(message.part, 1);
	assert_int_equal(message.first, 0);
	assert_true(message.sender.xid == sender.xid && message.sender.role == sender.role);
	assert_true(message.is_last);
	assert_false(message.logged);
	assert_true(herald_wal_next(&message, &found, buffer));
	assert_string_equal(found.channel, "c");
	assert_int_equal(found.channel_length, 1);
	assert_string_equal(found.payload, "p");
	assert_int_equal(found.payload_length, 1);
	assert_true(herald_wal_next(&message, &found, buffer));
	assert_string_equal(found.channel, "d");
	assert_string_equal(found.payload, "");
	assert_int_equal(found.payload_length, 0);
	assert_false(herald_wal_next(&message, &found, buffer));

	message = read_one(first_part, strlen(first_part), &found, buffer);
	assert_false(message.is_last);
	assert_int_equal(found.payload_length, 9);
	assert_string_equal(found.payload, "\"\\\b\f\n\r\t\001\037");

	assert_int_equal(herald_wal_scan(second_part, strlen(second_part), &message), HERALD_WAL_VALID);
	assert_int_equal(message.part, 2);
	assert_int_equal(message.first, 0xdeadbee8);
	assert_int_equal(message.place, UINT64_MAX - 7);
	assert_false(herald_wal_next(&message, &found, buffer));

	memset(&message, 0xA5, sizeof(message));
	assert_int_equal(herald_wal_scan(anchor, strlen(anchor), &message), HERALD_WAL_VALID);
	assert_int_equal(message.kind, HERALD_WAL_ANCHOR);
	assert_int_equal(message.run, RUN);
	assert_true(message.place == 0 && message.first == 0 && message.part == 0 && !message.is_last && !message.logged);
	assert_true(message.sender.xid == 0 && message.sender.role == 0);
	assert_false(herald_wal_next(&message, &found, buffer));

	message = read_one(setting, strlen(setting), &found, buffer);
	assert_int_equal(message.kind, HERALD_WAL_SETTING);
	assert_true(message.run == RUN && message.place == 0 && message.first == 0 && message.part == 0 && !message.is_last);
	assert_true(message.logged);
	assert_string_equal(found.channel, "orders*");
	assert_int_equal(found.channel_length, 7);
	assert_string_equal(found.payload, "");
	assert_int_equal(found.payload_length, 0);
	assert_false(read_one(setting_off, strlen(setting_off), &found, buffer).logged);
	assert_string_equal(found.channel, "\a");
}

/* Guards: numbers keep all of their bits. */
static void
test_numbers(void **state UNUSED)
{
	char		text[256];
	HeraldWalMessage message;

	for (int shift = 0; shift < 64; shift++)
	{
		uint64_t	number = UINT64_C(0xF23456789ABCDEF1) >> shift;
		uint32_t	part = (uint32_t) number > 1 ? (uint32_t) number : 2;
		size_t		length = herald_wal_write_head(text, number, part, number, (HeraldSender) {number, (uint32_t) number});

		length += herald_wal_write_tail(text + length, true);
		herald_wal_set_place(text, number);
		assert_int_equal(herald_wal_scan(text, length, &message), HERALD_WAL_VALID);
		assert_true(message.run == number && message.place == number && message.first == number);
		assert_true(message.sender.xid == number && message.sender.role == (uint32_t) number);
		assert_int_equal(message.part, part);
		assert_int_equal(scan(text, length), HERALD_WAL_VALID);
	}
}

/* Guards: each character is written in its own form, comes back, and has no other form. */
static void
test_characters(void **state UNUSED)
{
	static const char *const short_forms[] = {
		['"'] = "\\\"",['\\'] = "\\\\",['\b'] = "\\b",['\f'] = "\\f",['\n'] = "\\n",['\r'] = "\\r",['\t'] = "\\t"
	};

	for (int character = 1; character <= UINT8_MAX; character++)
	{
		char		raw[2] = {(char) character, '\0'};
		char		escaped[8];
		char		text[256];
		char		buffer[256];
		char		form[8];
		size_t		length;
		HeraldWalNotification found;

		if (character < (int) LENGTH_OF(short_forms) && short_forms[character])
			strcpy(form, short_forms[character]);
		else
			snprintf(form, sizeof(form), character < 0x20 ? "\\u%04x" : "%c", character);
		length = herald_wal_write_setting(text, RUN, raw, 1, true);
		assert_int_equal(length, strlen(SETTING) + strlen("\"\",\"logged\":true}") + strlen(form));
		assert_memory_equal(text + strlen(SETTING) + 1, form, strlen(form));
		(void) read_one(text, length, &found, buffer);
		assert_string_equal(found.channel, raw);

		/* All other ways to write it. */
		for (int way = 0; way < 4; way++)
		{
			snprintf(escaped, sizeof(escaped), way == 0 ? "%c" : way == 1 ? "\\u%04x" : way == 2 ? "\\u%04X" : "\\%c",
					 character);
			snprintf(text, sizeof(text), LIST_AT "{\"channel\":\"c\",\"payload\":\"%s\"}" LAST, escaped);

			/* A backslash and "n" is the form of another character. */
			if (way == 3 && strchr("\"\\bfnrt", character))
				assert_scan(text, HERALD_WAL_VALID);
			else if (way == 0 && character == '\\')
				assert_scan(text, HERALD_WAL_INVALID);
			else
				assert_scan(text, strcmp(form, escaped) == 0 ? HERALD_WAL_VALID : HERALD_WAL_INVALID);
		}
	}
}

/* Guards: no part of a text is valid, nor a text with something behind it; not a byte behind its end is read. */
static void
test_truncated(void **state UNUSED)
{
	for (size_t i = 0; i < LENGTH_OF(texts); i++)
	{
		size_t		length = strlen(texts[i]);

		assert_int_equal(scan(texts[i], length), HERALD_WAL_VALID);
		for (size_t cut = 0; cut < length; cut++)
			assert_int_equal(scan(texts[i], cut), HERALD_WAL_INVALID);
		for (size_t cut = 1; cut <= length; cut++)
			assert_int_equal(scan(texts[i] + cut, length - cut), HERALD_WAL_INVALID);
		assert_int_equal(scan(texts[i], length + 1), HERALD_WAL_INVALID);	/* with the NUL */
	}
}

/*
 * Guards: a text with one byte changed, removed or added is invalid, or has another content
 * that is written just like that: scan() compares.
 */
static void
test_changed(void **state UNUSED)
{
	char		text[512];

	for (size_t i = 0; i < LENGTH_OF(texts); i++)
		for (size_t at = 0; at < strlen(texts[i]); at++)
		{
			size_t		length = strlen(texts[i]);
			bool		in_version = at == strlen("{\"version\":");

			for (int byte = 0; byte <= UINT8_MAX; byte++)
			{
				memcpy(text, texts[i], length);
				text[at] = (char) byte;
				assert_true(scan(text, length) != HERALD_WAL_NEWER || (in_version && byte >= '2' && byte <= '9'));

				memmove(text + at + 1, texts[i] + at, length - at);
				assert_true(scan(text, length + 1) != HERALD_WAL_NEWER ||
							(byte >= '0' && byte <= '9' && (in_version || at == strlen("{\"version\":1"))));
			}
			memcpy(text, texts[i], at);
			memcpy(text + at, texts[i] + at + 1, length - at - 1);
			assert_true(scan(text, length - 1) != HERALD_WAL_NEWER);
		}
}

/* Guards: what other JSON writers, and other programs, would write is rejected. */
static void
test_invalid(void **state UNUSED)
{
	static const char *const wrong[] = {
		"", "{}", "null", "\"\"", "pg_herald",
		"{\"version\":1}", "{\"version\":0,\"kind\":\"anchor\",\"run\":\"0123456789abcdef\"}",
		"{\"version\":01,\"kind\":\"anchor\",\"run\":\"0123456789abcdef\"}",
		"{\"version\":-1,\"kind\":\"anchor\",\"run\":\"0123456789abcdef\"}",
		"{\"version\":1,\"kind\":\"anchor\",\"run\":\"0123456789ABCDEF\"}",
		"{\"version\":1,\"kind\":\"anchor\",\"run\":\"123456789abcdef\"}",
		"{\"version\":1,\"kind\":\"anchor\",\"run\":\"00123456789abcdef\"}",
		"{\"version\":1,\"kind\":\"anchor\",\"run\":\"0123456789abcdeg\"}",
		"{\"version\":1,\"kind\":\"anchor\",\"run\":\"0123456789abcdef\",\"more\":1}",
		"{\"version\":1, \"kind\":\"anchor\",\"run\":\"0123456789abcdef\"}",
		"{\"version\":1,\"run\":\"0123456789abcdef\",\"kind\":\"anchor\"}",
		"{\"version\":1,\"kind\":\"\",\"run\":\"0123456789abcdef\"}",
		"{\"version\":1,\"kind\":\"anchors\",\"run\":\"0123456789abcdef\"}",
		"{\"version\":1,\"kind\":\"setting\",\"run\":\"0123456789abcdef\"}",
		"{\"version\":1,\"kind\":\"notifications\",\"run\":\"0123456789abcdef\"}",
		START PART("0", NO_FIRST) NOTIFICATION LAST,
		START PART("01", NO_FIRST) NOTIFICATION LAST,
		START PART("+1", NO_FIRST) NOTIFICATION LAST,
		START PART("1.0", NO_FIRST) NOTIFICATION LAST,
		START PART("", NO_FIRST) NOTIFICATION LAST,
		START PART("4294967296", "0000000000000001") NOTIFICATION LAST,
		START PART("4294967297", NO_FIRST) NOTIFICATION LAST,
		START PART("18446744073709551617", NO_FIRST) NOTIFICATION LAST,
		START PART("1", "0000000000000001") NOTIFICATION LAST,
		START PART("2", NO_FIRST) NOTIFICATION LAST,
		LIST_AT "," NOTIFICATION LAST,
		LIST_AT NOTIFICATION "," LAST,
		LIST_AT NOTIFICATION NOTIFICATION LAST,
		LIST_AT NOTIFICATION ",," NOTIFICATION LAST,
		LIST_AT "\"c\"" LAST,
		LIST_AT "{}" LAST,
		LIST_AT "{\"channel\":\"c\"}" LAST,
		LIST_AT "{\"channel\":\"\",\"payload\":\"p\"}" LAST,
		LIST_AT "{\"channel\":null,\"payload\":\"p\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":null}" LAST,
		LIST_AT "{\"payload\":\"p\",\"channel\":\"c\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":\"p\",\"payload\":\"p\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":\"\\/\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":\"\\u0000\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":\"\\u0020\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":\"\\u1\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":\"\\u0101\"}" LAST,
		LIST_AT "{\"channel\":\"c\",\"payload\":\"\\ud83d\\ude00\"}" LAST,
		START ",\"place\":\"0000000000000000\",\"part\":1,\"first\":\"" NO_FIRST "\",\"notifications\":[" NOTIFICATION LAST,
		START ",\"place\":\"0000000000000000\",\"part\":1,\"first\":\"" NO_FIRST "\",\"xid\":\"abc\",\"role\":1,\"notifications\":[" NOTIFICATION LAST,
		START ",\"place\":\"0000000000000000\",\"part\":1,\"first\":\"" NO_FIRST "\",\"xid\":\"0000003f00000abc\",\"role\":01,\"notifications\":[" NOTIFICATION LAST,
		LIST_AT NOTIFICATION "],\"last\":1}",
		LIST_AT NOTIFICATION "],\"last\":null}",
		LIST_AT NOTIFICATION "],\"last\":true,}",
		LIST_AT NOTIFICATION "],\"last\":true}}",
		LIST_AT NOTIFICATION "]}",
		START ",\"place\":\"0000000000000001\",\"part\":1,\"first\":\"0000000000000000\"" FROM "\"notifications\":[],\"last\":false}",
		SETTING "\"\",\"logged\":true}", SETTING "\"a\",\"logged\":0}", SETTING "\"a\"}",
		SETTING "\"a\",\"payload\":\"\",\"logged\":true}",
	};
	static const char with_nul[] = LIST_AT "{\"channel\":\"c\",\"payload\":\"\0\"}" LAST;

	assert_scan(LIST_AT NOTIFICATION LAST, HERALD_WAL_VALID);
	assert_scan(LIST_AT LAST, HERALD_WAL_VALID);
	assert_scan(START PART("2", "0000000000000001") NOTIFICATION LAST, HERALD_WAL_VALID);
	assert_scan(START PART("4294967295", "0000000000000001") NOTIFICATION LAST, HERALD_WAL_VALID);
	for (size_t i = 0; i < LENGTH_OF(wrong); i++)
		assert_scan(wrong[i], HERALD_WAL_INVALID);
	assert_int_equal(scan(with_nul, sizeof(with_nul) - 1), HERALD_WAL_INVALID);
}

/* Guards: an invalid or newer text leaves the message as it was. */
static void
test_untouched(void **state UNUSED)
{
	HeraldWalMessage before;
	HeraldWalMessage message;

	memset(&before, 0xA5, sizeof(before));
	message = before;
	assert_int_equal(herald_wal_scan(last_part, strlen(last_part) - 1, &message), HERALD_WAL_INVALID);
	assert_int_equal(herald_wal_scan("{\"version\":2,", strlen("{\"version\":2,"), &message), HERALD_WAL_NEWER);
	assert_memory_equal(&message, &before, sizeof(message));
}

/* Guards: a later version is recognized, whatever follows; only a version that is written as one. */
static void
test_newer(void **state UNUSED)
{
	assert_scan("{\"version\":2,", HERALD_WAL_NEWER);
	assert_scan("{\"version\":10,\"kind\":\"anchor\",\"run\":\"0123456789abcdef\"}", HERALD_WAL_NEWER);
	assert_scan("{\"version\":4294967295,anything", HERALD_WAL_NEWER);
	assert_scan("{\"version\":4294967296,anything", HERALD_WAL_INVALID);
	assert_scan("{\"version\":4294967297,\"kind\":\"anchor\",\"run\":\"0123456789abcdef\"}", HERALD_WAL_INVALID);
	assert_scan("{\"version\":2", HERALD_WAL_INVALID);
	assert_scan("{\"version\":2}", HERALD_WAL_INVALID);
	assert_scan("{\"version\":02,", HERALD_WAL_INVALID);
	assert_scan("{\"version\":,", HERALD_WAL_INVALID);
	assert_scan("{\"version\":\"2\",", HERALD_WAL_INVALID);
	assert_scan("{\"version\": 2,", HERALD_WAL_INVALID);
}

/* Guards: strings of any length come back whole, in texts as long as notification_max() says. */
static void
test_long_strings(void **state UNUSED)
{
	static const size_t payload_lengths[] = {0, 1, 7999, 1 << 20};
	char	   *channel = malloc(HERALD_WAL_CHANNEL_MAX);

	memset(channel, '\001', HERALD_WAL_CHANNEL_MAX);
	for (size_t i = 0; i < LENGTH_OF(payload_lengths); i++)
	{
		size_t		payload_length = payload_lengths[i];
		size_t		max = herald_wal_notification_max(HERALD_WAL_CHANNEL_MAX, payload_length);
		char	   *payload = malloc(payload_length + 1);
		char	   *notification = malloc(max);
		char	   *text = malloc(HERALD_WAL_HEAD_MAX + max + HERALD_WAL_TAIL_MAX);
		char	   *buffer;
		size_t		length = herald_wal_write_head(text, RUN, 1, 0, sender);
		HeraldWalNotification found;

		memset(payload, '\037', payload_length);
		assert_int_equal(herald_wal_write_notification(notification, false, channel, HERALD_WAL_CHANNEL_MAX,
													   payload, payload_length), max);
		memcpy(text + length, notification + 1, max - 1);
		length += max - 1;
		length += herald_wal_write_tail(text + length, true);
		buffer = malloc(length);
		(void) read_one(text, length, &found, buffer);
		assert_int_equal(found.channel_length, HERALD_WAL_CHANNEL_MAX);
		assert_memory_equal(found.channel, channel, HERALD_WAL_CHANNEL_MAX);
		assert_int_equal(found.payload_length, payload_length);
		assert_memory_equal(found.payload, payload, payload_length);
		assert_true(found.channel[found.channel_length] == '\0' && found.payload[found.payload_length] == '\0');
		free(buffer);
		free(text);
		free(notification);
		free(payload);
	}
	free(channel);
}

/* Guards: a channel as long as the limit is valid, a longer one is not. */
static void
test_channel_limit(void **state UNUSED)
{
	char	   *text = malloc(HERALD_WAL_CHANNEL_MAX + 256);

	for (int more = 0; more <= 1; more++)
		for (int is_setting = 0; is_setting <= 1; is_setting++)
		{
			size_t		length = (size_t) sprintf(text, is_setting ? SETTING "\"" : LIST_AT "{\"channel\":\"");

			memset(text + length, 'c', HERALD_WAL_CHANNEL_MAX + (size_t) more);
			length += HERALD_WAL_CHANNEL_MAX + (size_t) more;
			length += (size_t) sprintf(text + length, is_setting ? "\",\"logged\":true}" : "\",\"payload\":\"\"}" LAST);
			assert_int_equal(scan(text, length), more ? HERALD_WAL_INVALID : HERALD_WAL_VALID);
		}
	free(text);
}

/* Guards: the limits that callers allocate by are those of the longest texts, but for less than 32 bytes. */
static void
test_limits(void **state UNUSED)
{
	char		text[1024];
	const char	pattern[] = "\001\002\003";
	const struct
	{
		size_t		length;
		size_t		max;
	}			written[] = {
		{herald_wal_write_head(text, UINT64_MAX, UINT32_MAX, UINT64_MAX, (HeraldSender) {UINT64_MAX, UINT32_MAX}), HERALD_WAL_HEAD_MAX},
		{herald_wal_write_tail(text, false), HERALD_WAL_TAIL_MAX},
		{herald_wal_write_anchor(text, UINT64_MAX), HERALD_WAL_ANCHOR_MAX},
		{herald_wal_write_setting(text, UINT64_MAX, pattern, 3, false), HERALD_WAL_SETTING_MAX(3)},
		{herald_wal_write_notification(text, false, pattern, 3, pattern, 2), herald_wal_notification_max(3, 2)},
	};

	for (size_t i = 0; i < LENGTH_OF(written); i++)
		assert_true(written[i].length <= written[i].max && written[i].max - written[i].length < 32);
}

/* Guards: a list of many is read in order, by each copy of the message on its own, with strings of any bytes. */
static void
test_many(void **state UNUSED)
{
	enum
	{
		NOTIFICATIONS = 1000
	};
	char	   *text = malloc(HERALD_WAL_HEAD_MAX + NOTIFICATIONS * herald_wal_notification_max(16, 255) + HERALD_WAL_TAIL_MAX);
	size_t		length = herald_wal_write_head(text, RUN, 1, 0, sender);
	char		payload[UINT8_MAX];
	char	   *buffer;
	HeraldWalMessage message;

	for (int i = 0; i < UINT8_MAX; i++)
		payload[i] = (char) (i + 1);
	for (int i = 0; i < NOTIFICATIONS; i++)
	{
		char		channel[16];
		int			channel_length = snprintf(channel, sizeof(channel), "c%d", i);

		length += herald_wal_write_notification(text + length, i == 0, channel, (size_t) channel_length,
												payload + i % 100, (size_t) (UINT8_MAX - i % 100));
	}
	length += herald_wal_write_tail(text + length, true);
	buffer = malloc(length);

	assert_int_equal(scan(text, length), HERALD_WAL_VALID);
	assert_int_equal(herald_wal_scan(text, length, &message), HERALD_WAL_VALID);
	for (int pass = 0; pass < 2; pass++)
	{
		HeraldWalMessage rest = message;
		HeraldWalNotification found;

		for (int i = 0; i < NOTIFICATIONS; i++)
		{
			char		channel[16];

			snprintf(channel, sizeof(channel), "c%d", i);
			assert_true(herald_wal_next(&rest, &found, buffer));
			assert_string_equal(found.channel, channel);
			assert_int_equal(found.channel_length, strlen(channel));
			assert_int_equal(found.payload_length, UINT8_MAX - i % 100);
			assert_memory_equal(found.payload, payload + i % 100, found.payload_length);
		}
		assert_false(herald_wal_next(&rest, &found, buffer));
	}
	free(buffer);
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_texts),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_characters),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_invalid),
		cmocka_unit_test(test_untouched),
		cmocka_unit_test(test_newer),
		cmocka_unit_test(test_long_strings),
		cmocka_unit_test(test_channel_limit),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests_name("WAL messages", tests, NULL, NULL);
}
