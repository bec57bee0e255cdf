package herald

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	earlierPause  = time.Second     // before an earlier session of this consumer is ended
	quickMin      = 2 * time.Second // that a server may take for a statement that waits for nothing
	unlockTimeout = time.Second
	idleStore     = time.Minute // a position without notifications is stored that often at most
)

// lockPauses are those between attempts to get the lock.
var lockPauses = Backoff{50 * time.Millisecond, time.Second}

// Consumer receives notifications and misses none. It is made by [New].
type Consumer struct {
	config          Config
	table           table
	listeningConfig *pgx.ConnConfig
	workConfig      *pgx.ConnConfig
	running         atomic.Bool
}

// New returns a consumer, or an [ErrConfiguration]. It does not connect.
func New(config Config) (*Consumer, error) {
	checked, err := config.checked()
	if err != nil {
		return nil, err
	}
	c := &Consumer{config: checked, table: newTable(checked)}
	if c.listeningConfig, c.workConfig, err = parseConnections(checked); err != nil {
		return nil, err
	}
	return c, nil
}

// CreateStore makes the table of positions, if it is not there. It uses the work connection.
func (c *Consumer) CreateStore(ctx context.Context) error {
	work, err := c.connect(ctx, c.workConfig, ignore)
	if err != nil {
		return err
	}
	defer work.end()
	limited, cancel := context.WithTimeout(ctx, c.config.WorkTimeout)
	defer cancel()
	err = c.table.create(limited, work)
	return storeError(err, work.IsClosed())
}

// Run receives and handles notifications until ctx ends: then the batch in work is finished, and Run returns nil.
//
// It returns an error if the start fails, with the cause (see [ErrConfiguration] and the others), and a [HandlerError] if
// the handler fails too often. What happens after the start is an event, and is tried again. Run may be called
// again when it has returned.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return wrong("the consumer runs already")
	}
	defer c.running.Store(false)
	r := &run{Consumer: c, ctx: ctx}
	err := r.keepOn()
	c.emit(Event{Name: Stopped, Err: err})
	return err
}

// run is one call of Run.
type run struct {
	*Consumer
	ctx context.Context // ends when the consumer is to stop

	started bool // errors are not the caller's any more
	retries int  // attempts to connect since something was handled, or the server has shown that it is alive
	troubles

	work     *link
	own      session // that of the work connection
	holder   session // the last one of this consumer that may have got the lock
	epoch    int64
	position string // up to here everything is handled, and that is stored; empty: nothing
	storedAt time.Time
	usedAt   time.Time // the work connection, successfully
}

// keepOn connects again and again, and returns the consumer's end.
func (r *run) keepOn() error {
	for {
		err := r.connected()
		var final *HandlerError
		switch {
		case errors.As(err, &final):
			return final
		case r.ctx.Err() != nil:
			return nil
		case !r.started:
			return atStart(err)
		}
		pause := r.config.Backoff.pause(r.retries)
		r.retries++
		r.emit(Event{Name: Disconnected, Err: err, Pause: pause})
		if sleep(r.ctx, pause) != nil {
			return nil
		}
	}
}

// connected does everything from the connecting on until a connection breaks, or the end. Both connections are closed then.
func (r *run) connected() (err error) {
	var l *listener
	stopListener := func() {
		if l != nil {
			l.stop()
		}
		l = nil
	}
	defer func() {
		stopListener()
		r.closeWork(r.ctx.Err() != nil || errors.Is(err, ErrHandler))
	}()
	if err := r.openWork(); err != nil {
		return err
	}
	if !r.started { // whatever is wrong is reported now, also if another instance is active
		if l, err = r.openListener(r.ctx, false); err != nil {
			return err
		}
	}
	for {
		if err := r.become(stopListener); err != nil {
			return err
		}
		if l == nil {
			if l, err = r.openListener(r.ctx, false); err != nil {
				return err
			}
		}
		l.start(r.position)
		err := r.consume(l)
		if refusal := err; errors.Is(refusal, errStandby) {
			stopListener()
			if l, err = r.openListener(r.ctx, true); err != nil {
				return fmt.Errorf("%w (%w)", err, refusal)
			}
			l.start(r.position)
			err = r.consume(l)
		}
		if !errors.Is(err, errSuperseded) {
			return err
		}
		r.emit(Event{Name: Superseded})
		stopListener()
		if err := r.giveUp(); err != nil {
			return err
		}
	}
}

// openWork makes the work connection, and at the start looks for the table.
func (r *run) openWork() error {
	if r.config.Shared {
		return nil
	}
	work, err := r.connect(r.ctx, r.workConfig, ignore)
	if err != nil {
		return err
	}
	r.work = work
	return r.quick(r.ctx, func(ctx context.Context) error {
		if r.own, err = r.prepareWork(ctx, work); err != nil {
			return lost(err)
		}
		if r.started || r.config.Store != nil {
			return nil
		}
		return storeError(r.table.check(ctx, work), work.IsClosed())
	})
}

// closeWork ends the work connection, and with it the lock; politely: it is free when this returns, if the server answers.
func (r *run) closeWork(politely bool) {
	if r.work == nil {
		return
	}
	if politely && !r.broken() {
		ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
		_, _ = r.work.Exec(ctx, unlock, r.config.Name)
		cancel()
	}
	r.work.end()
	r.work = nil
}

// become makes this instance the active one, when no other one is. Before it waits, it calls waits.
func (r *run) become(waits func()) error {
	if r.config.Shared {
		return nil
	}
	if err := r.waitForLock(waits); err != nil {
		return err
	}
	err := r.statement(r.ctx, func(ctx context.Context) error {
		var err error
		if r.config.Store == nil {
			r.position, r.epoch, err = r.table.activate(ctx, r.work)
			return storeError(err, r.work.IsClosed())
		}
		r.position, err = r.config.Store.Load(ctx)
		return ownStoreError(err)
	})
	if err == nil {
		r.emit(Event{Name: Active, Epoch: r.epoch})
	}
	return err
}

func (r *run) waitForLock(waits func()) error {
	since := time.Now()
	for attempt := 0; ; attempt++ {
		var mine bool
		err := r.quick(r.ctx, func(ctx context.Context) error {
			err := r.work.QueryRow(ctx, tryLock, r.config.Name).Scan(&mine)
			if mine || err != nil {
				r.holder = r.own
			} else if r.holder != r.own && r.holder.pid != 0 && time.Since(since) > min(r.config.Heartbeat, earlierPause) {
				_, err = r.work.Exec(ctx, endEarlier, r.config.Name, r.holder.pid, r.holder.started)
			}
			return lost(err)
		})
		if mine || err != nil {
			return err
		}
		if attempt == 0 {
			r.emit(Event{Name: Waiting})
			r.started = true
			waits()
		}
		if err := sleep(r.ctx, lockPauses.limit(attempt)); err != nil {
			return err
		}
	}
}

// giveUp gives another instance, if there is one, the time to get the lock.
func (r *run) giveUp() error {
	err := r.quick(r.ctx, func(ctx context.Context) error {
		_, err := r.work.Exec(ctx, unlock, r.config.Name)
		return lost(err)
	})
	if err != nil {
		return err
	}
	return sleep(r.ctx, 2*lockPauses.Max)
}

func ignore(*pgconn.PgConn, *pgconn.Notification) {}
