/*-------------------------------------------------------------------------
 *
 * token.c
 *	  A token: a position as text, for clients to store.
 *
 *		version | flags | run | database | nonce | content | tag | checksum
 *
 * in base64, with the URL-safe alphabet.  The content is encrypted, since the queue belongs to all
 * databases: the distance between two places would reveal how much other databases have sent.
 * The tag authenticates the token, since a reader relies on a batch beginning at the place: a
 * client that could forge places could have its own payloads read as batches, with lengths of its
 * choice.
 *
 * Both use a key that is derived from the random nonce in pg_control, which initdb has drawn.  All
 * servers of a physical cluster have the same one, no SQL function shows it, and no dump contains it.
 *
 * The checksum distinguishes a token with another key, of another cluster, from a damaged one.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/base64.h"
#include "common/hmac.h"
#include "common/sha2.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"

#include "base/compat.h"
#include "base/database.h"
#include "notify/position/token.h"

#define VERSION			3
#define TAG_BYTES		16
#define FLAG_MOVED		1

/* What is encrypted. */
typedef struct Content
{
	uint64		position;
	uint64		offset;
	HeraldWalMark wal;
	uint64		partial_run;
	uint64		partial_place;
	uint32		partial_passed;
	uint32		passed;
	uint32		bypasses;
} Content;

#define CONTENT_BYTES	(offsetof(Content, bypasses) + sizeof(uint32))

typedef struct Sealed
{
	uint8		version;
	uint8		flags;
	uint8		run[8];			/* of the server that the place belongs to */
	uint8		database[4];
	uint8		nonce[8];
	uint8		content[CONTENT_BYTES];
	uint8		tag[TAG_BYTES];
	uint8		checksum[4];
} Sealed;

static_assert(sizeof(Sealed) * 4 == (size_t) HERALD_TOKEN_LENGTH * 3, "the token fills its text");

/* The purpose of a keyed hash. */
typedef enum Purpose
{
	PURPOSE_ENCRYPT = 'e',
	PURPOSE_TAG = 't'
} Purpose;

static const uint8 *key_of_database(HeraldTokenHash *hash);
static void next_nonce(uint8 nonce[8]);
static void encrypt_content(HeraldTokenHash *hash, Sealed *sealed);
static void make_tag(HeraldTokenHash *hash, const Sealed *sealed, uint8 tag[TAG_BYTES]);
static void keyed_hash(HeraldTokenHash *hash, Purpose purpose, const void *bytes, size_t length,
					   uint8 digest[PG_SHA256_DIGEST_LENGTH]);
static void hmac(HeraldTokenHash *hash, const void *key, size_t key_length, uint8 first, const void *bytes,
				 size_t length, uint8 digest[PG_SHA256_DIGEST_LENGTH]);
static pg_crc32c checksum_of(const Sealed *sealed);
static char exchanged(char c, const char *ours, const char *theirs);
static bool from_text(const char *text, Sealed *sealed);
static void to_text(const Sealed *sealed, char *text);
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
herald_token_write(HeraldTokenHash *hash, const HeraldToken *token, char text[HERALD_TOKEN_LENGTH + 1])
{
	Content		content = {
		.position = token->place.position,
		.offset = token->place.offset,
		.wal = token->wal,
		.partial_run = token->partial.run,
		.partial_place = token->partial.place,
		.partial_passed = token->partial.passed,
		.passed = token->passed,
		.bypasses = token->bypasses,
	};
	Sealed		sealed = {.version = VERSION};
	pg_crc32c	checksum;

	sealed.flags = token->moved ? FLAG_MOVED : 0;
	memcpy(sealed.run, &token->run, sizeof(sealed.run));
	memcpy(sealed.database, &MyDatabaseId, sizeof(sealed.database));
	next_nonce(sealed.nonce);
	memcpy(sealed.content, &content, CONTENT_BYTES);
	encrypt_content(hash, &sealed);
	make_tag(hash, &sealed, sealed.tag);
	checksum = checksum_of(&sealed);
	memcpy(sealed.checksum, &checksum, sizeof(sealed.checksum));
	to_text(&sealed, text);
}

HeraldGone
herald_token_read(const char *text, HeraldToken *token)
{
	HeraldTokenHash *hash;
	Sealed		sealed;
	Content		content;
	uint8		tag[TAG_BYTES];
	bool		is_ours;
	pg_crc32c	checksum;

	if (!from_text(text, &sealed))
		report_invalid();
	checksum = checksum_of(&sealed);
	if (memcmp(sealed.checksum, &checksum, sizeof(checksum)) != 0)
		report_invalid();
	if (sealed.version != VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("notification position has an unknown version"),
				 errdetail("Its version is %d, this server reads version %d.", sealed.version, VERSION)));
	memset(token, 0, sizeof(*token));
	if (memcmp(sealed.database, &MyDatabaseId, sizeof(sealed.database)) != 0)
		return HERALD_GONE_DATABASE;

	hash = herald_token_hash_open();
	make_tag(hash, &sealed, tag);
	is_ours = memcmp(sealed.tag, tag, sizeof(tag)) == 0;
	encrypt_content(hash, &sealed);
	herald_token_hash_close(hash);
	if (!is_ours)
		return HERALD_GONE_DATABASE;
	memcpy(&token->run, sealed.run, sizeof(sealed.run));
	memcpy(&content, sealed.content, CONTENT_BYTES);
	token->place = (HeraldPlace) {content.position, content.offset};
	token->bypasses = content.bypasses;
	token->passed = content.passed;
	token->moved = (sealed.flags & FLAG_MOVED) != 0;
	token->partial = (HeraldPartial) {content.partial_run, content.partial_place, content.partial_passed};
	token->wal = content.wal;
	return HERALD_GONE_NOTHING;
}

bool
herald_token_precedes_database(const HeraldToken *token)
{
	HeraldDatabase *database = herald_database_find(MyDatabaseId);

	return database != NULL && token->place.position < atomic_load(&database->created_at);
}

bool
herald_token_is_here(const HeraldToken *token)
{
	return !token->moved && token->run == herald_control->server_run;
}

/*
 * The key is of this cluster and this database.
 *
 * The nonce is what the server hashes to answer with a plausible salt when a client names a role
 * that does not exist: GetMockAuthenticationNonce().
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

		hmac(hash, GetMockAuthenticationNonce(), MOCK_AUTH_NONCE_LEN, 0, &purpose, sizeof(purpose), key);
		is_known = true;
	}
	return key;
}

/*
 * Generate a nonce; the same one is extremely unlikely to occur twice in a run of the server.
 */
static void
next_nonce(uint8 nonce[8])
{
	static uint64 last;

	if (last == 0 && !pg_strong_random(&last, sizeof(last)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random bytes for a notification position")));
	last++;
	memcpy(nonce, &last, sizeof(last));
}

/* Encrypt or decrypt the content, with a key stream derived from the nonce. */
static void
encrypt_content(HeraldTokenHash *hash, Sealed *sealed)
{
	uint8		stream[PG_SHA256_DIGEST_LENGTH];
	uint8		seed[sizeof(sealed->nonce) + 1];

	memcpy(seed, sealed->nonce, sizeof(sealed->nonce));
	for (size_t i = 0; i < sizeof(sealed->content); i++)
	{
		if (i % sizeof(stream) == 0)
		{
			seed[sizeof(sealed->nonce)] = (uint8) (i / sizeof(stream));
			keyed_hash(hash, PURPOSE_ENCRYPT, seed, sizeof(seed), stream);
		}
		sealed->content[i] ^= stream[i % sizeof(stream)];
	}
}

/* Compute the tag of everything before it. */
static void
make_tag(HeraldTokenHash *hash, const Sealed *sealed, uint8 tag[TAG_BYTES])
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	keyed_hash(hash, PURPOSE_TAG, sealed, offsetof(Sealed, tag), digest);
	memcpy(tag, digest, TAG_BYTES);
}

static void
keyed_hash(HeraldTokenHash *hash, Purpose purpose, const void *bytes, size_t length,
		   uint8 digest[PG_SHA256_DIGEST_LENGTH])
{
	hmac(hash, key_of_database(hash), PG_SHA256_DIGEST_LENGTH, (uint8) purpose, bytes, length, digest);
}

static void
hmac(HeraldTokenHash *hash, const void *key, size_t key_length, uint8 first, const void *bytes, size_t length,
	 uint8 digest[PG_SHA256_DIGEST_LENGTH])
{
	if (pg_hmac_init(hash, key, key_length) < 0 ||
		pg_hmac_update(hash, &first, sizeof(first)) < 0 ||
		pg_hmac_update(hash, bytes, length) < 0 ||
		pg_hmac_final(hash, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute a notification position: %s", pg_hmac_error(hash))));
}

static pg_crc32c
checksum_of(const Sealed *sealed)
{
	pg_crc32c	checksum;

	INIT_CRC32C(checksum);
	COMP_CRC32C(checksum, sealed, offsetof(Sealed, checksum));
	FIN_CRC32C(checksum);
	return checksum;
}

/* If c is in `ours`, the character at the same place in `theirs`; else c. */
static char
exchanged(char c, const char *ours, const char *theirs)
{
	const char *found = strchr(ours, c);

	if (found == NULL || c == '\0')
		return c;
	return theirs[found - ours];
}

/* False: wrong length, or an invalid character. */
static bool
from_text(const char *text, Sealed *sealed)
{
	char		standard[HERALD_TOKEN_LENGTH];

	if (strlen(text) != HERALD_TOKEN_LENGTH)
		return false;
	for (int i = 0; i < HERALD_TOKEN_LENGTH; i++)
	{
		if (text[i] == '+' || text[i] == '/' || text[i] == '=')
			return false;
		standard[i] = exchanged(text[i], "-_", "+/");
	}
	return pg_b64_decode(standard, HERALD_TOKEN_LENGTH, (void *) sealed, sizeof(*sealed)) == sizeof(*sealed);
}

static void
to_text(const Sealed *sealed, char *text)
{
	if (pg_b64_encode((const void *) sealed, sizeof(*sealed), text, HERALD_TOKEN_LENGTH) != HERALD_TOKEN_LENGTH)
		elog(ERROR, "could not encode a notification position");
	for (int i = 0; i < HERALD_TOKEN_LENGTH; i++)
		text[i] = exchanged(text[i], "+/", "-_");
	text[HERALD_TOKEN_LENGTH] = '\0';
}

static void
report_invalid(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid notification position"),
			 errdetail("It was changed, or does not come from herald.position(), herald.read() or channel \"herald_position\".")));
}
