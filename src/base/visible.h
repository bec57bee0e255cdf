/*-------------------------------------------------------------------------
 *
 * visible.h
 *	  Which rows of a view the current role may see.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_VISIBLE_H
#define HERALD_VISIBLE_H

#include "postgres.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"

/* May it see all rows? */
static inline bool
herald_sees_all(void)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/* May it see the rows of this role's sessions? */
static inline bool
herald_sees_role(Oid role)
{
	return OidIsValid(role) && has_privs_of_role(GetUserId(), role);
}

#endif							/* HERALD_VISIBLE_H */
