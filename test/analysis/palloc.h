/*
 * Tells gcc's analysis, which knows malloc() and free() only, what the server's
 * allocator takes and gives back. Included before each file of src/.
 */
#include "postgres.h"

#define FREED_BY_PFREE	__attribute__((malloc(pfree, 1), returns_nonnull))

FREED_BY_PFREE extern void *palloc(Size size);
FREED_BY_PFREE extern void *palloc0(Size size);
FREED_BY_PFREE extern void *MemoryContextAlloc(MemoryContext context, Size size);
FREED_BY_PFREE extern void *MemoryContextAllocZero(MemoryContext context, Size size);
FREED_BY_PFREE extern void *MemoryContextAllocHuge(MemoryContext context, Size size);
