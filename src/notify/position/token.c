/*-------------------------------------------------------------------------
 *
 * token.c
 *	  A token: a position as text, for clients to store.
 *
 *		version - database - run - place - bypasses - moved
 *			- from - done - furthest - witness's run - witness's place - tag
 *
 * Each part consists of hexadecimal digits, without leading zeros except in the tag; docs/resume.md explains the parts.
 *
 * The tag authenticates the token.  A reader assumes that a batch begins at the token's place.  So a client that could
 * forge places could make a reader take the client's own payloads for batches, with lengths of the client's choice.
 * The tag's key is derived from the random nonce that initdb has stored in pg_control.  A primary and its standbys have
 * the same nonce, no SQL function shows the nonce, and no dump contains the nonce.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/hmac.h"
#include "common/sha2.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/compat.h"
#include "base/database.h"
#include "notify/position/token.h"

#define VERSION			4
#define TAG_BYTES		16
#define TAG_DIGITS		((size_t) 2 * TAG_BYTES)
#define PARTS			11

static int	write_parts(const HeraldToken *token, Oid database, char *text);
static bool read_parts(const char *text, HeraldToken *token, Oid *database);
static void write_tag(HeraldTokenHash *hash, const char *text, int length, char *tag);
static const uint8 *key_of_database(HeraldTokenHash *hash);
static void hmac(HeraldTokenHash *hash, const void *key, size_t key_length, const void *bytes,
				 size_t length, uint8 digest[PG_SHA256_DIGEST_LENGTH]);
herald_noreturn static void report_invalid(void);


HeraldTokenHash *
herald_token_hash_open(void)
{
	HeraldTokenHash *hash = pg_hmac_create(PG_SHA256);

	if (hash == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	return hash;
}

void
herald_token_hash_close(HeraldTokenHash *hash)
{
	pg_hmac_free(hash);
}

void
herald_token_write(HeraldTokenHash *hash, const HeraldToken *token, char text[HERALD_TOKEN_MAX + 1])
{
	int			length = write_parts(token, MyDatabaseId, text);

	write_tag(hash, text, length, text + length);
}

/* A text is a token only if its parts are exactly as write_parts() writes them. */
HeraldGone
herald_token_read(const char *text, HeraldToken *token)
{
	char		again[HERALD_TOKEN_MAX + 1];
	Oid			database;
	int			length;
	HeraldTokenHash *hash;

	if (!read_parts(text, token, &database))
		report_invalid();
	length = write_parts(token, database, again);
	if (strncmp(text, again, length) != 0 || strlen(text + length) != TAG_DIGITS ||
		strspn(text + length, "0123456789abcdef") != TAG_DIGITS)
		report_invalid();
	if (database != MyDatabaseId)
		return herald_gone(HERALD_GONE_DATABASE);

	hash = herald_token_hash_open();
	write_tag(hash, again, length, again + length);
	herald_token_hash_close(hash);
	return herald_gone(strcmp(text, again) == 0 ? HERALD_GONE_NOTHING : HERALD_GONE_DATABASE);
}

/*
 * Write all parts but the tag, and return the length of the text.  Part 10 is the run of the witness or, if there is
 * no witness, the run of the anchor.
 */
static int
write_parts(const HeraldToken *token, Oid database, char *text)
{
	const HeraldReceipt *wal = &token->wal;

	return snprintf(text, HERALD_TOKEN_MAX + 1, "%x-%x-%llx-%llx-%x-%x-%llx-%llx-%llx-%llx-%llx-", VERSION, database,
					(unsigned long long) token->run, (unsigned long long) token->place, token->bypasses, token->moved,
					(unsigned long long) wal->from.wal, (unsigned long long) wal->done,
					(unsigned long long) wal->furthest.end,
					(unsigned long long) (wal->furthest.end != 0 ? wal->furthest.run : wal->from.run),
					(unsigned long long) wal->furthest.place);
}

/* Read all parts but the tag.  Returns false if a part is missing or is not a number. */
static bool
read_parts(const char *text, HeraldToken *token, Oid *database)
{
	uint64		parts[PARTS];
	const char *rest = text;

	for (int i = 0; i < PARTS; i++)
	{
		char	   *end;

		parts[i] = strtou64(rest, &end, 16);
		if (*end != '-')
			return false;
		rest = end + 1;
	}
	if (parts[0] != VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("notification position has an unknown version"),
				 errdetail("Its version is %llx, this server reads version %x.", (unsigned long long) parts[0], VERSION)));
	*database = (Oid) parts[1];
	memset(token, 0, sizeof(*token));
	token->run = parts[2];
	token->place = parts[3];
	token->bypasses = (uint32) parts[4];
	token->moved = parts[5] != 0;
	token->wal.from.wal = parts[6];
	token->wal.done = parts[7];
	if (parts[8] != 0)
	{
		token->wal.furthest.end = parts[8];
		token->wal.furthest.run = parts[9];
		token->wal.furthest.place = parts[10];
	}
	else
		token->wal.from.run = parts[9];
	return true;
}

bool
herald_token_precedes_database(const HeraldToken *token)
{
	HeraldDatabase *database = herald_database_find(MyDatabaseId);

	return database != NULL && token->place < atomic_load(&database->created_at);
}

bool
herald_token_is_here(const HeraldToken *token)
{
	return !token->moved && token->run == herald_control->server_run;
}

/* Write the tag of this text to `tag`, with a NUL at its end. */
static void
write_tag(HeraldTokenHash *hash, const char *text, int length, char *tag)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	hmac(hash, key_of_database(hash), PG_SHA256_DIGEST_LENGTH, text, length, digest);
	(void) hex_encode((const char *) digest, TAG_BYTES, tag);
	tag[TAG_DIGITS] = '\0';
}

/*
 * Returns the key of this database, which differs between clusters and between databases.  The key is derived from
 * GetMockAuthenticationNonce(), a secret from which the server makes salts for roles that do not exist.
 */
static const uint8 *
key_of_database(HeraldTokenHash *hash)
{
	static uint8 key[PG_SHA256_DIGEST_LENGTH];
	static bool is_known;

	if (!is_known)
	{
		struct
		{
			char		label[20];
			Oid			database;
		}			purpose = {"pg_herald position", MyDatabaseId};

		hmac(hash, GetMockAuthenticationNonce(), MOCK_AUTH_NONCE_LEN, &purpose, sizeof(purpose), key);
		is_known = true;
	}
	return key;
}

static void
hmac(HeraldTokenHash *hash, const void *key, size_t key_length, const void *bytes, size_t length,
	 uint8 digest[PG_SHA256_DIGEST_LENGTH])
{
	if (pg_hmac_init(hash, key, key_length) < 0 ||
		pg_hmac_update(hash, bytes, length) < 0 ||
		pg_hmac_final(hash, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute a notification position: %s", pg_hmac_error(hash))));
}

static void
report_invalid(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid notification position"),
			 errdetail("It was changed, or does not come from herald.position(), herald.read() or channel \"herald_position\".")));
}
