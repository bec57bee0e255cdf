package herald

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

const (
	nameMax          = 63 // bytes
	ownPrefix        = "herald_"
	heartbeatMin     = 100 * time.Millisecond
	defaultTable     = "herald_consumer"
	defaultBatch     = 1000
	defaultAttempts  = 5
	defaultHeartbeat = 5 * time.Second
	defaultTimeout   = time.Minute
	defaultFirst     = 100 * time.Millisecond
	defaultMax       = 10 * time.Second
)

// Notification is what a NOTIFY has sent.
type Notification struct {
	Channel string
	Payload string
	// PID is the process ID of the sender's session; on a standby, that of the server's process that passes it on.
	PID uint32
}

// Handler handles a batch: the notifications of one or more whole transactions, in order. For a transaction of more than
// [Config.Batch] notifications it is called several times, in one transaction tx.
//
// Everything that it does in tx is committed together with the position, once. It must not commit or roll back tx.
// Savepoints, by tx.Begin, are fine. With [Config.Store] and with [Config.Shared], tx is nil, and what it is called for
// may come again.
//
// ctx ends after [Config.WorkTimeout]. It does not end when the context of [Consumer.Run] does: the batch in work is
// finished. A handler that works outside of tx must return when ctx ends.
type Handler func(ctx context.Context, tx pgx.Tx, batch []Notification) error

// StateReader is called when notifications may be missing, before any that came later are handled. It does what is left
// to do, from the tables that the notifications are about. Notifications that come afterwards may be for something that
// it has seen already. The transaction and the context are as for [Handler].
type StateReader func(ctx context.Context, tx pgx.Tx, reason Reason) error

// PoisonHandler decides about a notification for which the handler has failed again and again, with cause at last. What it
// has written in tx is committed with the rest of the batch if it returns [Skip]. An error means that it has
// failed itself: the batch is tried again, and after some times the consumer ends. tx is nil with [Config.Store]
// and [Config.Shared].
type PoisonHandler func(ctx context.Context, tx pgx.Tx, notification Notification, cause error) (Decision, error)

// Store keeps a position in a place of the user's own.
type Store interface {
	// Load returns the position that was saved last, or an empty string if there is none.
	Load(ctx context.Context) (string, error)
	// Save stores a position. Its length is at most 173 characters.
	Save(ctx context.Context, position string) error
}

// Reason says why notifications may be missing.
type Reason string

// The reasons for which [Config.State] is called.
const (
	FirstStart Reason = "first start" // no position is stored
	Gone       Reason = "gone"        // the server does not have everything any more that came after the position
	Stock      Reason = "stock"       // the server has no pg_herald; at each connection
)

// Decision is what is done about a notification that cannot be handled.
type Decision int

// What a [PoisonHandler] can decide.
const (
	Stop Decision = iota // roll the batch back, and end the consumer with a [HandlerError]
	Skip                 // go on without the notification
)

// String returns "stop" or "skip".
func (d Decision) String() string {
	if d == Skip {
		return "skip"
	}
	return "stop"
}

// Backoff describes the pauses between attempts: before attempt n, counted from 0, a time at random between 0 and
// First × 2ⁿ, and not more than Max.
type Backoff struct {
	First time.Duration // 0: 0.1 s
	Max   time.Duration // 0: 10 s
}

// Config is the configuration of a [Consumer]. Zero values stand for the defaults.
type Config struct {
	// Connection is the connection string of the listening connection, as pgx takes it: a URI, or keywords and values;
	// what it does not say is taken from the environment (PGHOST, ...). Several hosts are tried in turn;
	// target_session_attrs chooses among them.
	Connection string
	// WorkConnection is the same for the connection in which Handle runs. Default: Connection. Of several hosts the one that
	// accepts writing is used. A pooler between must keep the session: PgBouncer with pool_mode = session.
	WorkConnection string
	// BeforeConnect, if set, is called before each attempt to connect, and may change what the connection string says:
	// a password that expires, TLS, a dialer.
	BeforeConnect func(ctx context.Context, config *pgx.ConnConfig) error

	// Name is the consumer's name. Of those with one name in a database, one is active at a time.
	Name string
	// Channels are the channels to listen to. Names are taken as they are, as by pg_notify().
	Channels []string
	// Handle handles the notifications. It must be set.
	Handle Handler
	// State, if set, is called exactly when something may be missing.
	State StateReader
	// Poison, if set, decides about a notification for which Handle fails. Without it the consumer ends.
	Poison PoisonHandler

	// Store, if set, keeps the position, instead of the table. Then Handle has no transaction, and each notification
	// is handled at least once.
	Store Store
	// Shared makes this process receive everything, from its start on, beside all others: no name, no lock, and the
	// position is in memory only. For caches and live updates.
	Shared bool
	// Require makes a server without pg_herald an error.
	Require bool

	// Heartbeat is how often something must come from the server at least. Default: 5 s; not less than 0.1 s. A connection from
	// which nothing has come for two heartbeats is left.
	Heartbeat time.Duration
	// Batch is the largest number of notifications for one call of Handle. Default: 1,000.
	Batch int
	// Attempts is the number of times that a batch may fail before it is handled one by one. Default: 5.
	Attempts int
	// Backoff describes the pauses before the next attempt.
	Backoff Backoff
	// WorkTimeout is the time for each attempt at a batch (of a larger transaction: at each part), a state, or a statement.
	// Default: 1 min.
	WorkTimeout time.Duration
	// Table is the table with the positions. Default: herald_consumer. It may have the schema before it, with a dot.
	Table string

	// OnEvent, if set, is called with each event, by the goroutine of [Consumer.Run]: it must return soon.
	OnEvent func(Event)
	// Logger is given a line for each event. Default: slog.Default().
	Logger *slog.Logger
}

// checked returns the configuration with all defaults, or an error.
func (c Config) checked() (Config, error) {
	if c.Handle == nil {
		return c, wrong("Handle is not set")
	}
	if c.Shared && c.Name != "" {
		return c, wrong("a shared consumer has no name")
	}
	if c.Shared && c.Store != nil {
		return c, wrong("a shared consumer has no store")
	}
	if !c.Shared {
		if err := checkName("the name", c.Name); err != nil {
			return c, err
		}
	}
	if len(c.Channels) == 0 {
		return c, wrong("there are no channels")
	}
	c.Channels = slices.Compact(slices.Sorted(slices.Values(c.Channels)))
	for _, channel := range c.Channels {
		if err := checkName("the channel", channel); err != nil {
			return c, err
		}
	}
	return c.withDefaults()
}

func (c Config) withDefaults() (Config, error) {
	if c.Table == "" {
		c.Table = defaultTable
	}
	for _, part := range strings.Split(c.Table, ".") {
		if part == "" || strings.ContainsRune(part, 0) {
			return c, wrong("%q cannot be the name of a table", c.Table)
		}
	}
	if c.Batch < 0 || c.Attempts < 0 {
		return c, wrong("Batch and Attempts must not be negative")
	}
	c.Batch = orDefault(c.Batch, defaultBatch)
	c.Attempts = orDefault(c.Attempts, defaultAttempts)
	for _, one := range []struct {
		name         string
		value        *time.Duration
		ifZero, from time.Duration
	}{
		{"Heartbeat", &c.Heartbeat, defaultHeartbeat, heartbeatMin},
		{"WorkTimeout", &c.WorkTimeout, defaultTimeout, time.Millisecond},
		{"Backoff.First", &c.Backoff.First, defaultFirst, time.Microsecond},
		{"Backoff.Max", &c.Backoff.Max, defaultMax, time.Microsecond},
	} {
		*one.value = orDefault(*one.value, one.ifZero)
		if *one.value < one.from {
			return c, wrong("%s must be at least %s", one.name, one.from)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

func orDefault[T comparable](value, ifZero T) T {
	var zero T
	if value == zero {
		return ifZero
	}
	return value
}

// checkName checks what stands for a consumer or a channel: both have the limits of a channel's name.
func checkName(what, name string) error {
	switch {
	case name == "":
		return wrong("%s is empty", what)
	case len(name) > nameMax:
		return wrong("%s %q is longer than %d bytes", what, name, nameMax)
	case strings.HasPrefix(name, ownPrefix):
		return wrong("%s %q begins with %s, which pg_herald keeps for itself", what, name, ownPrefix)
	case strings.ContainsRune(name, 0) || !utf8.ValidString(name):
		return wrong("%s %q is no text", what, name)
	}
	return nil
}

func wrong(format string, arguments ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConfiguration}, arguments...)...)
}
