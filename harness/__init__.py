"""Common code of the benchmark, the demo and the tests.

installation    chooses the PostgreSQL installation, and finds programs
cluster         a private server of PostgreSQL
standby         a standby of such a server
tcp_cluster     one that also listens on the loopback interface, with a password
private_server  a private server of another kind: PgBouncer, Redis, NATS
server_user     the user that servers run as, and its folders
ports           free TCP ports
listeners       connections that listen, held by the C program bench/clients/listen.c
cleanup         stops and removes all of these when the interpreter ends, in whatever way
"""
