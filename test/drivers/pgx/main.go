// The scenario of ../README.md with pgx: WaitForNotification, with long and with short deadlines.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	writers             = 4
	rowsPerTransaction  = 10
	waitingTransactions = 400 // of each writer, while the listener only waits
	busyTransactions    = 100 // of each writer, while the listener runs statements
	deadline            = 60 * time.Second
	glance              = time.Millisecond
)

var background = context.Background()

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "pgx: "+format+"\n", arguments...)
	os.Exit(1)
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func connect() *pgx.Conn {
	connection, err := pgx.Connect(background, "")
	must(err)
	return connection
}

func run(connection *pgx.Conn, sql string, arguments ...any) {
	if _, err := connection.Exec(background, sql, arguments...); err != nil {
		fail("%s: %v", sql, err)
	}
}

func short(payload string) string {
	if len(payload) > 40 {
		return payload[:40]
	}
	return payload
}

// listener is a connection that listens, and what it has heard.
type listener struct {
	*pgx.Conn
	pid     uint32
	heard   int
	lastSeq [writers + 1]int
}

// connect connects, or connects again, and listens.
func (l *listener) connect() {
	l.Conn = connect()
	must(l.QueryRow(background, "SELECT pg_backend_pid()").Scan(&l.pid))
	run(l.Conn, "LISTEN events")
}

// wait gives the next notification, or an error when the time is over or the connection has ended.
func (l *listener) wait(limit time.Duration) (*pgconn.Notification, error) {
	limited, cancel := context.WithTimeout(background, limit)
	defer cancel()
	return l.WaitForNotification(limited)
}

// expect wants this payload next, and gives its sender.
func (l *listener) expect(payload string) uint32 {
	notification, err := l.wait(deadline)
	must(err)
	if notification.Channel != "events" || notification.Payload != payload {
		fail("heard %q on %s instead of %q", short(notification.Payload), notification.Channel, short(payload))
	}
	l.heard++
	return notification.PID
}

// takeRow wants each writer's rows in order, none lost and none doubled.
func (l *listener) takeRow(notification *pgconn.Notification) {
	var writer, seq int
	n, _ := fmt.Sscanf(notification.Payload, "%d %d", &writer, &seq)
	if n != 2 || writer < 1 || writer > writers {
		fail("heard %q during the load", short(notification.Payload))
	}
	if seq != l.lastSeq[writer]+1 {
		fail("writer %d: heard row %d after row %d", writer, seq, l.lastSeq[writer])
	}
	l.lastSeq[writer] = seq
	l.heard++
}

// takeAll takes what came with the results of statements, and comes within a glance.
func (l *listener) takeAll() {
	for {
		notification, err := l.wait(glance)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		must(err)
		l.takeRow(notification)
	}
}

// writeRows is one writer's part of a load, from row seq on.
func writeRows(writer, seq, transactions int) {
	connection := connect()
	defer connection.Close(background)
	for i := 0; i < transactions; i++ {
		first := seq + i*rowsPerTransaction
		must(pgx.BeginFunc(background, connection, func(transaction pgx.Tx) error {
			_, err := transaction.Exec(background,
				"INSERT INTO event SELECT $1, s FROM generate_series($2::int, $3::int) s",
				writer, first, first+rowsPerTransaction-1)
			return err
		}))
	}
}

// load runs all writers at once, each on a connection of its own, and the listener beside them.
func load(l *listener, transactions int, busy bool) {
	var running sync.WaitGroup
	wanted := l.heard + writers*transactions*rowsPerTransaction
	for writer := 1; writer <= writers; writer++ {
		running.Add(1)
		go func(writer, seq int) {
			defer running.Done()
			writeRows(writer, seq, transactions)
		}(writer, l.lastSeq[writer]+1)
	}
	for l.heard < wanted {
		if busy {
			run(l.Conn, "BEGIN")
			run(l.Conn, "SELECT count(*) FROM pg_class WHERE oid > $1", 0)
			run(l.Conn, "COMMIT")
			l.takeAll()
			continue
		}
		notification, err := l.wait(deadline)
		if err != nil {
			fail("heard %d, then: %v", l.heard, err)
		}
		l.takeRow(notification)
	}
	running.Wait()
}

// version is the one that go.mod pins.
func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/jackc/pgx/v5" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

func main() {
	l := &listener{}
	l.connect()
	other := connect()
	load(l, waitingTransactions, false)
	load(l, busyTransactions, true)

	large := strings.Repeat("ä€😀", 888) + strings.Repeat("x", 7) // 7,999 bytes
	run(other, "SELECT pg_notify('events', $1)", large)
	l.expect(large)

	run(l.Conn, "NOTIFY events, 'own'")
	if l.expect("own") != l.pid {
		fail("the notification of its own has another sender")
	}

	transaction, err := other.Begin(background)
	must(err)
	run(other, "NOTIFY events, 'rolled back'")
	must(transaction.Rollback(background))
	run(other, "NOTIFY events, 'committed'")
	l.expect("committed")

	run(l.Conn, "UNLISTEN events")
	run(other, "NOTIFY events, 'unheard'")
	run(l.Conn, "LISTEN events")
	run(other, "NOTIFY events, 'heard again'")
	l.expect("heard again")

	run(other, "SELECT pg_terminate_backend($1)", l.pid)
	if notification, err := l.wait(deadline); err == nil {
		fail("heard %q instead of the end of the connection", short(notification.Payload))
	}
	if !l.IsClosed() {
		fail("the end of the connection was not noticed")
	}
	run(other, "NOTIFY events, 'missed'")
	l.connect()
	run(other, "NOTIFY events, 'after reconnecting'")
	l.expect("after reconnecting")
	must(l.Close(background))
	must(other.Close(background))

	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"driver": "pgx", "version": version(), "heard": l.heard,
		"steps": []string{"waiting", "busy", "large", "own", "rollback", "unlisten", "reconnect"},
	}))
}
