/*-------------------------------------------------------------------------
 *
 * client.h
 *	  The server's functions for the connection to the client.
 *
 * libpq/libpq.h defines the structure Port.  In a server with GSSAPI it also includes the
 * headers of Kerberos, which no development package of the server depends on, and which are
 * not needed here.  Without ENABLE_GSS they are not included, and Port is the same: in each
 * major version its field `gss` is a pointer in both cases, "to keep struct offsets the same"
 * (libpq/libpq-be.h of 15, 16, 17, 18 and 19).
 *
 * So a file includes this header instead of libpq/libpq.h.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CLIENT_H
#define HERALD_CLIENT_H

#include "postgres.h"

#ifdef LIBPQ_BE_H
#error "base/client.h has to come before libpq/libpq-be.h"
#endif

#undef ENABLE_GSS

#include "libpq/libpq.h"
#include "libpq/libpq-be.h"

#endif							/* HERALD_CLIENT_H */
