"""What the benchmark, the demo and the tests share.

installation    which PostgreSQL, and where programs are
cluster         a private server of PostgreSQL
standby         a standby of such a server
tcp_cluster     one that also listens on the loopback interface, with a password
private_server  a private server of another kind: PgBouncer, Redis, NATS
server_user     whom these run as, and whose folders they have
ports           free TCP ports
listeners       connections that listen, held by the C program bench/clients/listen.c
cleanup         ends all of it, however we end
"""
