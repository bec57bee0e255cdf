/*-------------------------------------------------------------------------
 *
 * large_reader.h
 *	  Reads large transactions' files.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_READER_H
#define HERALD_LARGE_READER_H

#include "postgres.h"

/* Copy bytes of a file.  A HeraldReadFile.  In a transaction. */
extern bool herald_large_reader_read(uint64 number, uint64 offset, uint64 length, char *to);

#endif							/* HERALD_LARGE_READER_H */
