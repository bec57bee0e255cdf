// Package herald is a consumer of PostgreSQL's notifications that misses none, with pg_herald on the server and pgx.
//
// A [Consumer] has a name, channels, and a function that handles batches of notifications in a transaction. The
// position up to which everything is handled is stored in the same transaction; so each notification's work is committed
// exactly once, also when connections break, processes are killed, or two instances run. On logged channels this holds
// across servers.
// When something may be missing, which includes the first start, the function State is called, with the reason.
//
// On a server without pg_herald it works, too: State is called at each connection.
package herald
